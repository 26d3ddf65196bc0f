#include "deploy/support/process.h"
