/* Shared by the parts of the stand-in for libnvidia-ml. */
#ifndef VGPU_NVML_H
#define VGPU_NVML_H

#include "core.h"
#include "nvml_abi.h"

typedef struct nvml_device {
    int physical;
} nvml_device;

/* NVML_OK where the library is initialised and the handle one of its own. */
int nvml_check(const nvml_device *device);

#endif
