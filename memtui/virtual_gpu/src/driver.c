/* Stand-in for libcuda: the entry points that torch and triton look up, except
 * for the virtual-memory calls, which are in driver_memory.c. */
#include "core.h"
#include "cuda_abi.h"

#include <stdio.h>
#include <string.h>

/* A context handle says whose it is; 0x100 keeps it from being NULL. */
static void *context_of(int ordinal)
{
    return (void *)(uintptr_t)(0x100 + ordinal);
}

static int ordinal_of(const void *context)
{
    return (int)((uintptr_t)context - 0x100);
}

/* ---- devices ---------------------------------------------------------------- */

VGPU_API int cuInit(unsigned flags)
{
    (void)flags;
    return vgpu_visible_count() ? CUDA_OK : CUDA_NO_DEVICE;
}

VGPU_API int cuDriverGetVersion(int *version)
{
    *version = VGPU_CUDA_VERSION;
    return CUDA_OK;
}

VGPU_API int cuDeviceGetCount(int *count)
{
    *count = vgpu_visible_count();
    return CUDA_OK;
}

VGPU_API int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return vgpu_physical(ordinal) < 0 ? CUDA_INVALID_DEVICE : CUDA_OK;
}

VGPU_API int cuDeviceGetName(char *out, int size, int device)
{
    (void)device;
    snprintf(out, (size_t)size, "%s", vgpu_settings()->name);
    return CUDA_OK;
}

VGPU_API int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    int physical = vgpu_physical(device);

    if (physical < 0)
        return CUDA_INVALID_DEVICE;
    vgpu_uuid(physical, uuid);
    return CUDA_OK;
}

VGPU_API int cuDeviceGetUuid(unsigned char *uuid, int device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

VGPU_API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    int physical = vgpu_physical(device);

    if (physical < 0)
        return CUDA_INVALID_DEVICE;
    *bytes = vgpu_usable(physical);
    return CUDA_OK;
}

VGPU_API int cuDeviceTotalMem(size_t *bytes, int device)
{
    return cuDeviceTotalMem_v2(bytes, device);
}

VGPU_API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const struct vgpu_settings *s = vgpu_settings();
    int hopper = s->cc_major >= 9;
    int data_centre = hopper || (s->cc_major == 8 && s->cc_minor == 0);

    if (vgpu_physical(device) < 0)
        return CUDA_INVALID_DEVICE;
    switch (attribute) {
    case ATTRIBUTE_CC_MAJOR: *value = s->cc_major; break;
    case ATTRIBUTE_CC_MINOR: *value = s->cc_minor; break;
    case ATTRIBUTE_MULTIPROCESSORS: *value = s->multiprocessors; break;
    case ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case ATTRIBUTE_SHARED_MEMORY_OPT_IN: *value = (hopper ? 227 : data_centre ? 163 : 99) << 10; break;
    case ATTRIBUTE_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; break;
    case ATTRIBUTE_REGISTERS_PER_BLOCK:
    case ATTRIBUTE_REGISTERS_PER_MULTIPROCESSOR: *value = 65536; break;
    case ATTRIBUTE_CLOCK_KHZ: *value = 1800000; break;
    case ATTRIBUTE_MEMORY_CLOCK_KHZ: *value = 8001000; break;
    case ATTRIBUTE_MEMORY_BUS_WIDTH: *value = data_centre ? 5120 : 384; break;
    case ATTRIBUTE_PCI_BUS: *value = vgpu_physical(device) + 1; break;
    case ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT:
    case ATTRIBUTE_POSIX_FILE_HANDLES:
    case ATTRIBUTE_UNIFIED_ADDRESSING: *value = 1; break;
    default: *value = 0; vgpu_trace("driver attribute %d = 0", attribute);
    }
    return CUDA_OK;
}

/* ---- contexts: one for each device, and the thread's current one --------------- */

VGPU_API int cuDevicePrimaryCtxRetain(void **context, int device)
{
    int physical = vgpu_physical(device);

    if (physical < 0)
        return CUDA_INVALID_DEVICE;
    if (vgpu_enter_context(physical))
        return CUDA_OUT_OF_MEMORY;
    *context = context_of(device);
    return CUDA_OK;
}

VGPU_API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    int physical = vgpu_physical(device);

    if (physical < 0)
        return CUDA_INVALID_DEVICE;
    if (flags)
        *flags = 0;
    *active = vgpu_has_context(physical);
    return CUDA_OK;
}

VGPU_API int cuCtxGetCurrent(void **context)
{
    int ordinal = vgpu_current_ordinal(), physical = vgpu_physical(ordinal);

    *context = physical >= 0 && vgpu_has_context(physical) ? context_of(ordinal) : NULL;
    return CUDA_OK;
}

VGPU_API int cuCtxSetCurrent(void *context)
{
    if (context)
        vgpu_set_current_ordinal(ordinal_of(context));
    return CUDA_OK;
}

VGPU_API int cuCtxPushCurrent_v2(void *context)
{
    return cuCtxSetCurrent(context);
}

VGPU_API int cuCtxPopCurrent_v2(void **context)
{
    return cuCtxGetCurrent(context);
}

VGPU_API int cuCtxGetDevice(int *device)
{
    *device = vgpu_current_ordinal();
    return CUDA_OK;
}

VGPU_API int cuCtxGetLimit(size_t *value, int limit)
{
    (void)limit;
    *value = 0;
    return CUDA_OK;
}

/* ---- errors ------------------------------------------------------------------------ */

static const struct {
    int status;
    const char *name, *text;
} errors[] = {
    { CUDA_OK, "CUDA_SUCCESS", "no error" },
    { CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { CUDA_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
    { -1, "CUDA_ERROR_UNKNOWN", "virtual GPU error" },
};

static size_t error_of(int status)
{
    size_t i = 0;

    while (errors[i].status != status && errors[i].status != -1)
        i++;
    return i;
}

VGPU_API int cuGetErrorString(int status, const char **text)
{
    *text = errors[error_of(status)].text;
    return CUDA_OK;
}

VGPU_API int cuGetErrorName(int status, const char **name)
{
    *name = errors[error_of(status)].name;
    return CUDA_OK;
}

VGPU_API int cuLogsRegisterCallback(void *callback, void *data, void **handle)
{
    (void)callback;
    (void)data;
    *handle = (void *)(uintptr_t)1;
    return CUDA_OK;
}

/* ---- modules (nvrtc and triton kernels): loaded and launched as nothing ------------- */

static int module, function;

VGPU_API int cuModuleLoadData(void **out, const void *image)
{
    (void)image;
    *out = &module;
    return CUDA_OK;
}

VGPU_API int cuModuleLoadDataEx(void **out, const void *image, unsigned count, int *options, void **values)
{
    (void)count;
    (void)options;
    (void)values;
    return cuModuleLoadData(out, image);
}

VGPU_API int cuModuleLoad(void **out, const char *file)
{
    (void)file;
    *out = &module;
    return CUDA_OK;
}

VGPU_API int cuModuleGetFunction(void **out, void *from, const char *name)
{
    (void)from;
    (void)name;
    *out = &function;
    return CUDA_OK;
}

VGPU_API int cuFuncGetAttribute(int *value, int attribute, void *of)
{
    (void)of;
    *value = attribute == 0 ? 1024 : attribute == 4 ? 32 : 0; /* threads per block, registers */
    return CUDA_OK;
}

VGPU_API int cuLaunchKernel(void *what, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters,
                            void **extra)
{
    (void)what;
    (void)grid_x;
    (void)grid_y;
    (void)grid_z;
    (void)block_x;
    (void)block_y;
    (void)block_z;
    (void)shared_bytes;
    (void)stream;
    (void)parameters;
    (void)extra;
    vgpu_kernel_launched();
    return CUDA_OK;
}

VGPU_API int cuLaunchKernelEx(const void *config, void *what, void **parameters, void **extra)
{
    (void)config;
    (void)what;
    (void)parameters;
    (void)extra;
    vgpu_kernel_launched();
    return CUDA_OK;
}

VGPU_API int cuLaunchCooperativeKernel(void *what, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                       unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,
                                       void **parameters)
{
    return cuLaunchKernel(what, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters,
                          NULL);
}

VGPU_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *what, int threads, size_t shared_bytes)
{
    (void)what;
    (void)threads;
    (void)shared_bytes;
    *blocks = 2;
    return CUDA_OK;
}

VGPU_API int cuOccupancyMaxActiveClusters(int *clusters, void *what, const void *config)
{
    (void)what;
    (void)config;
    *clusters = 1;
    return CUDA_OK;
}

VGPU_API int cuTensorMapEncodeTiled(void *map)
{
    memset(map, 0, 128);
    return CUDA_OK;
}
