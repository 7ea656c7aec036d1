/* Stand-in for libnvidia-ml: what a virtual GPU does not have, MIG, NVLink and ECC. */
#include "nvml.h"

VGPU_API int nvmlDeviceGetMigMode(nvml_device *device, unsigned *current, unsigned *pending)
{
    int status = nvml_check(device);

    (void)current;
    (void)pending;
    return status == NVML_OK ? NVML_NOT_SUPPORTED : status;
}

VGPU_API int nvmlDeviceIsMigDeviceHandle(nvml_device *device, unsigned *is_mig)
{
    int status = nvml_check(device);

    if (status == NVML_OK)
        *is_mig = 0;
    return status;
}

VGPU_API int nvmlDeviceGetMaxMigDeviceCount(nvml_device *device, unsigned *count)
{
    int status = nvml_check(device);

    if (status == NVML_OK)
        *count = 0;
    return status;
}

VGPU_API int nvmlDeviceGetMigDeviceHandleByIndex(nvml_device *device, unsigned index, nvml_device **out)
{
    int status = nvml_check(device);

    (void)index;
    (void)out;
    return status == NVML_OK ? NVML_NOT_SUPPORTED : status;
}

VGPU_API int nvmlDeviceGetEccMode(nvml_device *device, int *current, int *pending)
{
    int status = nvml_check(device);

    (void)current;
    (void)pending;
    return status == NVML_OK ? NVML_NOT_SUPPORTED : status;
}

VGPU_API int nvmlDeviceGetGpuFabricInfoV(nvml_device *device, void *out)
{
    (void)device;
    (void)out;
    return NVML_NOT_SUPPORTED;
}

VGPU_API int nvmlDeviceGetNvLinkState(nvml_device *device, unsigned link, int *active)
{
    (void)device;
    (void)link;
    (void)active;
    return NVML_NOT_SUPPORTED;
}

VGPU_API int nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device *device, unsigned link, int *type)
{
    (void)device;
    (void)link;
    (void)type;
    return NVML_NOT_SUPPORTED;
}

VGPU_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device *device, unsigned link, struct nvml_pci *out)
{
    (void)device;
    (void)link;
    (void)out;
    return NVML_NOT_SUPPORTED;
}

VGPU_API int nvmlDeviceGetP2PStatus(nvml_device *device, nvml_device *peer, int index, int *state)
{
    (void)device;
    (void)peer;
    (void)index;
    (void)state;
    return NVML_NOT_SUPPORTED;
}
