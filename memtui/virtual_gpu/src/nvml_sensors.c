/* Stand-in for libnvidia-ml: sensors, plausible and constant. */
#include "nvml.h"

static int constant(const nvml_device *device, unsigned *out, unsigned value)
{
    int status = nvml_check(device);

    if (status == NVML_OK)
        *out = value;
    return status;
}

VGPU_API int nvmlDeviceGetTemperature(nvml_device *device, int sensor, unsigned *celsius)
{
    (void)sensor;
    return constant(device, celsius, 45);
}

VGPU_API int nvmlDeviceGetTemperatureV(nvml_device *device, struct nvml_temperature *out)
{
    int status = nvml_check(device);

    if (status != NVML_OK)
        return status;
    if (out->version != NVML_VERSION(struct nvml_temperature, 1))
        return NVML_VERSION_MISMATCH;
    out->celsius = 45;
    return NVML_OK;
}

VGPU_API int nvmlDeviceGetTemperatureThreshold(nvml_device *device, int which, unsigned *celsius)
{
    (void)which;
    return constant(device, celsius, 93);
}

VGPU_API int nvmlDeviceGetPowerUsage(nvml_device *device, unsigned *milliwatts)
{
    return constant(device, milliwatts, 75000);
}

VGPU_API int nvmlDeviceGetEnforcedPowerLimit(nvml_device *device, unsigned *milliwatts)
{
    return constant(device, milliwatts, 300000);
}

VGPU_API int nvmlDeviceGetPowerManagementLimit(nvml_device *device, unsigned *milliwatts)
{
    return constant(device, milliwatts, 300000);
}

VGPU_API int nvmlDeviceGetFanSpeed(nvml_device *device, unsigned *percent)
{
    return constant(device, percent, 30);
}

VGPU_API int nvmlDeviceGetPerformanceState(nvml_device *device, unsigned *state)
{
    return constant(device, state, 0);
}

VGPU_API int nvmlDeviceGetPersistenceMode(nvml_device *device, unsigned *mode)
{
    return constant(device, mode, 1);
}

VGPU_API int nvmlDeviceGetComputeMode(nvml_device *device, unsigned *mode)
{
    return constant(device, mode, 0);
}

VGPU_API int nvmlDeviceGetDisplayActive(nvml_device *device, unsigned *active)
{
    return constant(device, active, 0);
}

/* Clock 2 is the memory's. */
VGPU_API int nvmlDeviceGetClockInfo(nvml_device *device, int clock, unsigned *megahertz)
{
    return constant(device, megahertz, clock == 2 ? 8001 : 1800);
}

VGPU_API int nvmlDeviceGetMaxClockInfo(nvml_device *device, int clock, unsigned *megahertz)
{
    return constant(device, megahertz, clock == 2 ? 8001 : 2100);
}
