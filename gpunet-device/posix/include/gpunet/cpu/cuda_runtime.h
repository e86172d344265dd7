/* For programs on the CPU that include it. */
#include "../../gpunet_cpu.h"
