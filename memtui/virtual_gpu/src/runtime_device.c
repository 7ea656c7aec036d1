/* Stand-in for libcudart: devices and their properties. */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int runtime_device(int *physical)
{
    *physical = vgpu_physical(vgpu_current_ordinal());
    if (*physical < 0)
        return runtime_fail(CUDA_NO_DEVICE);
    if (vgpu_enter_context(*physical))
        return runtime_fail(CUDA_OUT_OF_MEMORY);
    return CUDA_OK;
}

/* ---- devices ---------------------------------------------------------------- */

VGPU_API int cudaDriverGetVersion(int *version)
{
    *version = VGPU_CUDA_VERSION;
    return CUDA_OK;
}

VGPU_API int cudaRuntimeGetVersion(int *version)
{
    *version = VGPU_CUDA_VERSION;
    return CUDA_OK;
}

VGPU_API int cudaGetDeviceCount(int *count)
{
    *count = vgpu_visible_count();
    return runtime_fail(*count ? CUDA_OK : CUDA_NO_DEVICE);
}

VGPU_API int cudaGetDevice(int *ordinal)
{
    *ordinal = vgpu_current_ordinal();
    return CUDA_OK;
}

VGPU_API int cudaSetDevice(int ordinal)
{
    int physical;

    if (vgpu_physical(ordinal) < 0)
        return runtime_fail(CUDA_INVALID_DEVICE);
    vgpu_set_current_ordinal(ordinal);
    return runtime_device(&physical); /* as of CUDA 12 this makes the context */
}

VGPU_API int cudaDeviceSynchronize(void)
{
    int physical;

    return runtime_device(&physical);
}

VGPU_API int cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    if (vgpu_physical(device) < 0 || vgpu_physical(peer) < 0)
        return runtime_fail(CUDA_INVALID_DEVICE);
    *can = device != peer;
    return CUDA_OK;
}

VGPU_API int cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    (void)flags;
    return runtime_fail(vgpu_physical(peer) < 0 ? CUDA_INVALID_DEVICE : CUDA_OK);
}

VGPU_API int cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_OK;
}

VGPU_API int cudaDeviceGetPCIBusId(char *out, int size, int ordinal)
{
    int physical = vgpu_physical(ordinal);

    if (physical < 0)
        return runtime_fail(CUDA_INVALID_DEVICE);
    snprintf(out, (size_t)size, "0000:%02x:00.0", physical + 1);
    return CUDA_OK;
}

/* Limits of one multiprocessor, by compute capability: from the table of technical
 * specifications in NVIDIA's CUDA programming guide.  Torch sizes launches and
 * workspaces by them. */
static const struct limits {
    int cc; /* 86 for 8.6 */
    int threads, blocks;
    int shared_memory_kib, shared_memory_opt_in_kib;
} all_limits[] = {
    { 60, 2048, 32, 64, 48 },    { 61, 2048, 32, 96, 48 },    { 70, 2048, 32, 96, 96 },
    { 75, 1024, 16, 64, 64 },    { 80, 2048, 32, 164, 163 },  { 86, 1536, 16, 100, 99 },
    { 87, 1536, 16, 164, 163 },  { 89, 1536, 24, 100, 99 },   { 90, 2048, 32, 228, 227 },
    { 100, 2048, 32, 228, 227 }, { 120, 1536, 24, 100, 99 },
};

/* Those of the newest capability that is no newer than the device's. */
static const struct limits *limits_of(int cc)
{
    const struct limits *found = all_limits;

    for (size_t i = 0; i < sizeof all_limits / sizeof *all_limits; i++) {
        if (all_limits[i].cc <= cc)
            found = &all_limits[i];
    }
    return found;
}

static void describe(struct cuda_device_properties *p, int physical)
{
    const struct vgpu_settings *s = vgpu_settings();
    int cc = 10 * s->cc_major + s->cc_minor;
    const struct limits *limits = limits_of(cc);
    int hopper = s->cc_major == 9 || s->cc_major == 10;
    int data_centre = hopper || cc == 60 || cc == 70 || cc == 80;

    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", s->name);
    vgpu_uuid(physical, p->uuid);
    p->total_memory = vgpu_usable(physical);
    p->cc_major = s->cc_major;
    p->cc_minor = s->cc_minor;
    p->multiprocessors = s->multiprocessors;
    p->pci_bus = physical + 1;

    p->shared_memory_per_block = 48 << 10;
    p->shared_memory_opt_in = (size_t)limits->shared_memory_opt_in_kib << 10;
    p->shared_memory_per_multiprocessor = (size_t)limits->shared_memory_kib << 10;
    p->shared_memory_reserved = cc >= 80 ? 1 << 10 : 0;
    p->registers_per_block = p->registers_per_multiprocessor = 65536;
    p->constant_memory = 64 << 10;
    p->l2_cache_bytes = hopper ? 50 << 20 : data_centre ? 40 << 20 : 6 << 20;
    p->memory_bus_width = data_centre ? 5120 : 384;
    p->memory_pitch = 0x7fffffff;

    p->warp_size = 32;
    p->max_threads_per_block = p->max_block[0] = p->max_block[1] = 1024;
    p->max_block[2] = 64;
    p->max_grid[0] = 0x7fffffff;
    p->max_grid[1] = p->max_grid[2] = 65535;
    p->threads_per_multiprocessor = limits->threads;
    p->blocks_per_multiprocessor = limits->blocks;

    p->texture_alignment = 512;
    p->texture_pitch_alignment = 32;
    p->async_engines = 2;
    p->can_map_host_memory = p->concurrent_kernels = p->unified_addressing = p->stream_priorities = 1;
    p->global_l1_cache = p->local_l1_cache = p->managed_memory = p->cooperative_launch = 1;
    p->compute_preemption = p->host_register = p->memory_pools = 1;
#if VGPU_CUDA_VERSION >= 13000
    p->host_numa_id = -1;
#endif
}

VGPU_API int cudaGetDeviceProperties(struct cuda_device_properties *properties, int ordinal)
{
    int physical = vgpu_physical(ordinal);

    if (physical < 0)
        return runtime_fail(CUDA_INVALID_DEVICE);
    describe(properties, physical);
    return CUDA_OK;
}

/* The name that CUDA 12's header turns the call into. */
VGPU_API int cudaGetDeviceProperties_v2(struct cuda_device_properties *properties, int ordinal)
{
    return cudaGetDeviceProperties(properties, ordinal);
}

static int attribute_value(const struct cuda_device_properties *p, int attribute)
{
    switch (attribute) {
    case ATTRIBUTE_MAX_THREADS_PER_BLOCK: return p->max_threads_per_block;
    case ATTRIBUTE_MAX_BLOCK_X: return p->max_block[0];
    case ATTRIBUTE_MAX_BLOCK_Y: return p->max_block[1];
    case ATTRIBUTE_MAX_BLOCK_Z: return p->max_block[2];
    case ATTRIBUTE_MAX_GRID_X: return p->max_grid[0];
    case ATTRIBUTE_MAX_GRID_Y: return p->max_grid[1];
    case ATTRIBUTE_MAX_GRID_Z: return p->max_grid[2];
    case ATTRIBUTE_SHARED_MEMORY_PER_BLOCK: return (int)p->shared_memory_per_block;
    case ATTRIBUTE_SHARED_MEMORY_OPT_IN: return (int)p->shared_memory_opt_in;
    case ATTRIBUTE_SHARED_MEMORY_PER_MULTIPROCESSOR: return (int)p->shared_memory_per_multiprocessor;
    case ATTRIBUTE_SHARED_MEMORY_RESERVED: return (int)p->shared_memory_reserved;
    case ATTRIBUTE_CONSTANT_MEMORY: return (int)p->constant_memory;
    case ATTRIBUTE_WARP_SIZE: return p->warp_size;
    case ATTRIBUTE_REGISTERS_PER_BLOCK: return p->registers_per_block;
    case ATTRIBUTE_REGISTERS_PER_MULTIPROCESSOR: return p->registers_per_multiprocessor;
    case ATTRIBUTE_CLOCK_KHZ: return 1800000;
    case ATTRIBUTE_MEMORY_CLOCK_KHZ: return 8001000;
    case ATTRIBUTE_MEMORY_BUS_WIDTH: return p->memory_bus_width;
    case ATTRIBUTE_MULTIPROCESSORS: return p->multiprocessors;
    case ATTRIBUTE_L2_CACHE_BYTES: return p->l2_cache_bytes;
    case ATTRIBUTE_THREADS_PER_MULTIPROCESSOR: return p->threads_per_multiprocessor;
    case ATTRIBUTE_BLOCKS_PER_MULTIPROCESSOR: return p->blocks_per_multiprocessor;
    case ATTRIBUTE_CC_MAJOR: return p->cc_major;
    case ATTRIBUTE_CC_MINOR: return p->cc_minor;
    case ATTRIBUTE_TEXTURE_ALIGNMENT: return (int)p->texture_alignment;
    case ATTRIBUTE_PCI_BUS: return p->pci_bus;
    case ATTRIBUTE_HOST_NUMA: return -1;
    case ATTRIBUTE_ASYNC_ENGINES: return p->async_engines;
    case ATTRIBUTE_UNIFIED_ADDRESSING:
    case ATTRIBUTE_CONCURRENT_KERNELS:
    case ATTRIBUTE_MANAGED_MEMORY:
    case ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case ATTRIBUTE_STREAM_PRIORITIES:
    case ATTRIBUTE_COOPERATIVE_LAUNCH:
    case ATTRIBUTE_COMPUTE_PREEMPTION:
    case ATTRIBUTE_HOST_REGISTER:
    case ATTRIBUTE_MEMORY_POOLS:
    case ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT:
    case ATTRIBUTE_POSIX_FILE_HANDLES: return 1;
    default: vgpu_trace("device attribute %d = 0", attribute); return 0;
    }
}

VGPU_API int cudaDeviceGetAttribute(int *value, int attribute, int ordinal)
{
    struct cuda_device_properties properties;
    int status = cudaGetDeviceProperties(&properties, ordinal);

    if (status == CUDA_OK)
        *value = attribute_value(&properties, attribute);
    return status;
}

/* ---- driver entry points: what the stand-in for libcuda exports ------------- */

static int refused_call(void)
{
    vgpu_trace("refused a driver call");
    return CUDA_NOT_SUPPORTED;
}

VGPU_API int cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                              unsigned long long flags, int *result)
{
    static const char *const suffixes[] = { "_v2", "_v3", "_v4" };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    char name[128];

    (void)version;
    (void)flags;
    *function = driver ? dlsym(driver, symbol) : NULL;
    for (size_t i = 0; driver && !*function && i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(name, sizeof name, "%s%s", symbol, suffixes[i]);
        *function = dlsym(driver, name);
    }
    if (!*function) {
        /* A pointer all the same: torch calls some of them without asking. */
        vgpu_trace("no driver entry point %s", symbol);
        *function = (void *)refused_call;
    }
    if (result)
        *result = 0;
    return CUDA_OK;
}

/* CUDA 12's form of it. */
VGPU_API int cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags, int *result)
{
    return cudaGetDriverEntryPointByVersion(symbol, function, VGPU_CUDA_VERSION, flags, result);
}
