#include "deploy/support/frame_io.h"
