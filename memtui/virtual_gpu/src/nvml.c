/* Stand-in for libnvidia-ml: start, devices, and what they are.  NVML numbers
 * physical devices and knows nothing of CUDA_VISIBLE_DEVICES. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static nvml_device devices[VGPU_MAX_DEVICES];
static int users; /* nvmlInit calls less nvmlShutdown calls */

int nvml_check(const nvml_device *device)
{
    if (__atomic_load_n(&users, __ATOMIC_ACQUIRE) <= 0)
        return NVML_UNINITIALIZED;
    if (device < devices || device >= devices + vgpu_settings()->device_count)
        return NVML_INVALID_ARGUMENT;
    return NVML_OK;
}

static int put_text(char *out, unsigned size, const char *text)
{
    if (!out)
        return NVML_INVALID_ARGUMENT;
    if (strlen(text) >= size)
        return NVML_INSUFFICIENT_SIZE;
    memcpy(out, text, strlen(text) + 1);
    return NVML_OK;
}

/* ---- start and end -------------------------------------------------------------- */

VGPU_API int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    if (__atomic_load_n(&users, __ATOMIC_ACQUIRE) == 0)
        vgpu_follow();
    for (int i = 0; i < VGPU_MAX_DEVICES; i++)
        devices[i].physical = i;
    __atomic_add_fetch(&users, 1, __ATOMIC_RELEASE);
    return NVML_OK;
}

VGPU_API int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

VGPU_API int nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

VGPU_API int nvmlShutdown(void)
{
    if (__atomic_sub_fetch(&users, 1, __ATOMIC_RELEASE) >= 0)
        return NVML_OK;
    __atomic_add_fetch(&users, 1, __ATOMIC_RELEASE);
    return NVML_UNINITIALIZED;
}

VGPU_API const char *nvmlErrorString(int status)
{
    switch (status) {
    case NVML_OK: return "Success";
    case NVML_UNINITIALIZED: return "Uninitialized";
    case NVML_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_NOT_SUPPORTED: return "Not Supported";
    case NVML_NOT_FOUND: return "Not Found";
    case NVML_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_GPU_IS_LOST: return "GPU is lost";
    case NVML_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

/* ---- the system -------------------------------------------------------------------- */

VGPU_API int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    return put_text(out, size, "580.00.vgpu");
}

VGPU_API int nvmlSystemGetNVMLVersion(char *out, unsigned size)
{
    return put_text(out, size, "13.580.00");
}

VGPU_API int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = VGPU_CUDA_VERSION;
    return NVML_OK;
}

VGPU_API int nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

VGPU_API int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size)
{
    char path[64], name[256];

    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NVML_NOT_FOUND;
    if (!fgets(name, sizeof name, file))
        name[0] = 0;
    fclose(file);
    name[strcspn(name, "\n")] = 0;
    return put_text(out, size, name);
}

/* ---- devices -------------------------------------------------------------------------- */

VGPU_API int nvmlDeviceGetCount_v2(unsigned *count)
{
    if (__atomic_load_n(&users, __ATOMIC_ACQUIRE) <= 0)
        return NVML_UNINITIALIZED;
    *count = (unsigned)vgpu_settings()->device_count;
    return NVML_OK;
}

VGPU_API int nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

VGPU_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device **out)
{
    unsigned count = 0;
    int status = nvmlDeviceGetCount_v2(&count);

    if (status != NVML_OK)
        return status;
    if (index >= count)
        return NVML_INVALID_ARGUMENT;
    *out = &devices[index];
    return NVML_OK;
}

VGPU_API int nvmlDeviceGetHandleByIndex(unsigned index, nvml_device **out)
{
    return nvmlDeviceGetHandleByIndex_v2(index, out);
}

VGPU_API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvml_device **out)
{
    unsigned domain, bus;

    if (!bus_id || sscanf(bus_id, "%x:%x:", &domain, &bus) != 2 || domain || !bus)
        return NVML_NOT_FOUND;
    int status = nvmlDeviceGetHandleByIndex_v2(bus - 1, out);
    return status == NVML_INVALID_ARGUMENT ? NVML_NOT_FOUND : status;
}

VGPU_API int nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device **out)
{
    for (int i = 0; uuid && i < vgpu_settings()->device_count; i++) {
        char text[64];
        vgpu_uuid_text(i, text, sizeof text);
        if (!strcmp(uuid, text))
            return nvmlDeviceGetHandleByIndex_v2((unsigned)i, out);
    }
    return NVML_NOT_FOUND;
}

VGPU_API int nvmlDeviceGetUUID(nvml_device *device, char *out, unsigned size)
{
    char text[64];
    int status = nvml_check(device);

    if (status != NVML_OK)
        return status;
    vgpu_uuid_text(device->physical, text, sizeof text);
    return put_text(out, size, text);
}

VGPU_API int nvmlDeviceGetName(nvml_device *device, char *out, unsigned size)
{
    int status = nvml_check(device);

    return status == NVML_OK ? put_text(out, size, vgpu_settings()->name) : status;
}

VGPU_API int nvmlDeviceGetIndex(nvml_device *device, unsigned *index)
{
    int status = nvml_check(device);

    if (status == NVML_OK)
        *index = (unsigned)device->physical;
    return status;
}

VGPU_API int nvmlDeviceGetMinorNumber(nvml_device *device, unsigned *number)
{
    return nvmlDeviceGetIndex(device, number);
}

VGPU_API int nvmlDeviceGetCudaComputeCapability(nvml_device *device, int *major, int *minor)
{
    int status = nvml_check(device);

    if (status == NVML_OK) {
        *major = vgpu_settings()->cc_major;
        *minor = vgpu_settings()->cc_minor;
    }
    return status;
}

VGPU_API int nvmlDeviceGetPciInfo_v3(nvml_device *device, struct nvml_pci *out)
{
    int status = nvml_check(device);

    if (status != NVML_OK)
        return status;
    memset(out, 0, sizeof *out);
    out->bus = (unsigned)device->physical + 1;
    out->device_id = 0x223010deu;
    snprintf(out->legacy_bus_id, sizeof out->legacy_bus_id, "0000:%02X:00.0", out->bus & 0xff);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus & 0xff);
    return NVML_OK;
}
