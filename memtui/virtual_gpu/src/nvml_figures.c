/* Stand-in for libnvidia-ml: memory, processes and utilisation.  The
 * figures of memory come from the table that the CUDA stand-ins charge.
 *
 * VGPU_NVML_MEMORY=not_supported|lost      memory info fails that way
 * VGPU_NVML_PROCESS_MEMORY=unavailable     processes are listed without bytes
 * VGPU_NVML_PID_OFFSET=N                   pids as another namespace has them
 * VGPU_UTIL=N                              percent of utilisation (default 0)
 * They are read at each call, so that a program can change them as it runs. */
#include "nvml.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static int is_set(const char *variable, const char *value)
{
    const char *text = getenv(variable);

    return text && !strcmp(text, value);
}

static unsigned number_of(const char *variable, unsigned otherwise)
{
    const char *text = getenv(variable);

    return text && *text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

/* ---- memory ------------------------------------------------------------------------ */

static int memory(const nvml_device *device, struct nvml_memory_v2 *out)
{
    int status = nvml_check(device);

    if (status != NVML_OK)
        return status;
    if (is_set("VGPU_NVML_MEMORY", "not_supported"))
        return NVML_NOT_SUPPORTED;
    if (is_set("VGPU_NVML_MEMORY", "lost"))
        return NVML_GPU_IS_LOST;
    uint64_t usable = vgpu_usable(device->physical), used = vgpu_used(device->physical);
    out->total = vgpu_settings()->capacity[device->physical];
    out->reserved = out->total - usable;
    out->used = used;
    out->free = used < usable ? usable - used : 0;
    return NVML_OK;
}

/* The first version counts the driver's share as used. */
VGPU_API int nvmlDeviceGetMemoryInfo(nvml_device *device, struct nvml_memory *out)
{
    struct nvml_memory_v2 figures;
    int status = memory(device, &figures);

    if (status == NVML_OK)
        *out = (struct nvml_memory){ figures.total, figures.free, figures.used + figures.reserved };
    return status;
}

VGPU_API int nvmlDeviceGetMemoryInfo_v2(nvml_device *device, struct nvml_memory_v2 *out)
{
    if (out->version != NVML_VERSION(struct nvml_memory_v2, 2))
        return NVML_VERSION_MISMATCH;
    return memory(device, out);
}

VGPU_API int nvmlDeviceGetBAR1MemoryInfo(nvml_device *device, struct nvml_bar1_memory *out)
{
    int status = nvml_check(device);

    if (status == NVML_OK)
        *out = (struct nvml_bar1_memory){ 256ull << 20, 254ull << 20, 2ull << 20 };
    return status;
}

/* ---- processes -------------------------------------------------------------------------- */

/* The processes on a device as NVML tells them; returns how many there are. */
static unsigned processes(const nvml_device *device, struct vgpu_usage out[VGPU_MAX_PROCESSES])
{
    int count = vgpu_users(device->physical, out, VGPU_MAX_PROCESSES);
    int unavailable = is_set("VGPU_NVML_PROCESS_MEMORY", "unavailable");
    unsigned offset = number_of("VGPU_NVML_PID_OFFSET", 0);

    for (int i = 0; i < count; i++) {
        out[i].pid += (pid_t)offset;
        if (unavailable)
            out[i].bytes = NVML_NOT_AVAILABLE;
    }
    return (unsigned)count;
}

/* How many there are goes to *count even where the caller's array is too short. */
static int list_processes(const nvml_device *device, unsigned *count, struct vgpu_usage found[VGPU_MAX_PROCESSES])
{
    int status = nvml_check(device);

    if (status != NVML_OK)
        return status;
    unsigned room = *count;
    *count = processes(device, found);
    return *count > room ? NVML_INSUFFICIENT_SIZE : NVML_OK;
}

VGPU_API int nvmlDeviceGetComputeRunningProcesses(nvml_device *device, unsigned *count, struct nvml_process_v1 *out)
{
    struct vgpu_usage found[VGPU_MAX_PROCESSES];
    int status = list_processes(device, count, found);

    for (unsigned i = 0; status == NVML_OK && i < *count; i++)
        out[i] = (struct nvml_process_v1){ (unsigned)found[i].pid, found[i].bytes };
    return status;
}

VGPU_API int nvmlDeviceGetComputeRunningProcesses_v2(nvml_device *device, unsigned *count, struct nvml_process_v2 *out)
{
    struct vgpu_usage found[VGPU_MAX_PROCESSES];
    int status = list_processes(device, count, found);

    for (unsigned i = 0; status == NVML_OK && i < *count; i++)
        out[i] = (struct nvml_process_v2){ (unsigned)found[i].pid, found[i].bytes, NVML_NO_INSTANCE, NVML_NO_INSTANCE };
    return status;
}

VGPU_API int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device *device, unsigned *count, struct nvml_process_v2 *out)
{
    return nvmlDeviceGetComputeRunningProcesses_v2(device, count, out);
}

/* Nothing draws on a virtual GPU. */
VGPU_API int nvmlDeviceGetGraphicsRunningProcesses(nvml_device *device, unsigned *count, void *out)
{
    int status = nvml_check(device);

    (void)out;
    if (status == NVML_OK)
        *count = 0;
    return status;
}

VGPU_API int nvmlDeviceGetGraphicsRunningProcesses_v2(nvml_device *device, unsigned *count, void *out)
{
    return nvmlDeviceGetGraphicsRunningProcesses(device, count, out);
}

VGPU_API int nvmlDeviceGetGraphicsRunningProcesses_v3(nvml_device *device, unsigned *count, void *out)
{
    return nvmlDeviceGetGraphicsRunningProcesses(device, count, out);
}

VGPU_API int nvmlDeviceGetMPSComputeRunningProcesses_v3(nvml_device *device, unsigned *count, void *out)
{
    return nvmlDeviceGetGraphicsRunningProcesses(device, count, out);
}

VGPU_API int nvmlDeviceGetRunningProcessDetailList(nvml_device *device, struct nvml_process_detail_list *list)
{
    struct vgpu_usage found[VGPU_MAX_PROCESSES];

    if (list->version != NVML_VERSION(struct nvml_process_detail_list, 1))
        return NVML_VERSION_MISMATCH;
    unsigned count = list->processes ? list->count : 0;
    int status = list_processes(device, &count, found);
    list->count = count;
    for (unsigned i = 0; status == NVML_OK && i < count; i++)
        list->processes[i] = (struct nvml_process_detail){ (unsigned)found[i].pid, found[i].bytes, NVML_NO_INSTANCE,
                                                           NVML_NO_INSTANCE, 0 };
    return status;
}

/* ---- utilisation ---------------------------------------------------------------------------- */

static unsigned long long now_microseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

static unsigned utilization(void)
{
    unsigned percent = number_of("VGPU_UTIL", 0);

    return percent > 100 ? 100 : percent;
}

VGPU_API int nvmlDeviceGetUtilizationRates(nvml_device *device, struct nvml_utilization *out)
{
    int status = nvml_check(device);

    if (status != NVML_OK)
        return status;
    uint64_t usable = vgpu_usable(device->physical);
    out->gpu = utilization();
    out->memory = usable ? (unsigned)(100 * vgpu_used(device->physical) / usable) : 0;
    return NVML_OK;
}

/* As a driver has it: no sample since the last call is "not found". */
VGPU_API int nvmlDeviceGetProcessUtilization(nvml_device *device, struct nvml_process_sample *out, unsigned *count,
                                             unsigned long long since)
{
    struct vgpu_usage found[VGPU_MAX_PROCESSES];
    unsigned room = out ? *count : 0;
    int status = list_processes(device, &room, found);
    unsigned long long now = now_microseconds();

    if (status != NVML_OK && status != NVML_INSUFFICIENT_SIZE)
        return status;
    *count = room;
    if (!room || since >= now)
        return NVML_NOT_FOUND;
    for (unsigned i = 0; status == NVML_OK && i < room; i++)
        out[i] = (struct nvml_process_sample){ (unsigned)found[i].pid, now, utilization() / room, 0, 0, 0 };
    return status;
}

VGPU_API int nvmlDeviceGetProcessesUtilizationInfo(nvml_device *device, struct nvml_process_utilization_list *list)
{
    struct vgpu_usage found[VGPU_MAX_PROCESSES];
    unsigned long long now = now_microseconds();

    if (list->version != NVML_VERSION(struct nvml_process_utilization_list, 1))
        return NVML_VERSION_MISMATCH;
    unsigned count = list->processes ? list->count : 0;
    int status = list_processes(device, &count, found);
    if (status != NVML_OK && status != NVML_INSUFFICIENT_SIZE)
        return status;
    list->count = count;
    if (!count || list->since >= now)
        return NVML_NOT_FOUND;
    for (unsigned i = 0; status == NVML_OK && i < count; i++)
        list->processes[i] = (struct nvml_process_utilization){ .microseconds = now, .pid = (unsigned)found[i].pid,
                                                                .sm = utilization() / count };
    return status;
}
