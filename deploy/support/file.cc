#include "deploy/support/file.h"
