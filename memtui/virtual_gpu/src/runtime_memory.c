/* Stand-in for libcudart: memory.  Bytes are accounted for in whole pages and
 * backed by address space; copies follow copies.c. */
#include "runtime.h"

#include <string.h>

VGPU_API int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    int physical, status = runtime_device(&physical);

    if (status != CUDA_OK)
        return status;
    uint64_t used = vgpu_used(physical);
    *total_bytes = vgpu_usable(physical);
    *free_bytes = used < *total_bytes ? *total_bytes - used : 0;
    return CUDA_OK;
}

VGPU_API int cudaMalloc(void **out, size_t size)
{
    int physical, status = runtime_device(&physical);

    *out = NULL;
    if (status != CUDA_OK || !size)
        return status;
    if (size > 1ull << 60 || vgpu_take(physical, size)) {
        vgpu_trace("cudaMalloc(%zu) on device %d: out of memory", size, physical);
        return runtime_fail(CUDA_OUT_OF_MEMORY);
    }
    void *address = vgpu_map(size, 1);
    if (address && vgpu_range_add(address, size, VGPU_DEVICE, physical)) {
        vgpu_unmap(address, size);
        address = NULL;
    }
    if (!address) {
        vgpu_give(physical, size);
        return runtime_fail(CUDA_OUT_OF_MEMORY);
    }
    vgpu_trace("cudaMalloc(%zu) on device %d = %p", size, physical, address);
    *out = address;
    return CUDA_OK;
}

VGPU_API int cudaFree(void *address)
{
    struct vgpu_range range;
    int physical, status = runtime_device(&physical);

    if (!address)
        return status;
    if (!vgpu_range_find(address, &range) || range.kind == VGPU_SHARED || !vgpu_range_remove(address, &range))
        return runtime_fail(CUDA_INVALID_VALUE);
    vgpu_unmap(address, range.size);
    vgpu_give(range.device, range.size);
    vgpu_trace("cudaFree(%p): %zu on device %d", address, range.size, range.device);
    return CUDA_OK;
}

/* ---- pools of cudaMallocAsync: one for each device, and nothing cached -------- */

static uint64_t pool_used[VGPU_MAX_DEVICES], pool_high[VGPU_MAX_DEVICES];

static void pool_taken(int device, uint64_t size)
{
    uint64_t used = __atomic_add_fetch(&pool_used[device], size, __ATOMIC_RELAXED);
    uint64_t high = __atomic_load_n(&pool_high[device], __ATOMIC_RELAXED);

    while (high < used
           && !__atomic_compare_exchange_n(&pool_high[device], &high, used, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

VGPU_API int cudaMallocAsync(void **out, size_t size, void *stream)
{
    int physical, status = cudaMalloc(out, size);

    (void)stream;
    if (status == CUDA_OK && *out && runtime_device(&physical) == CUDA_OK)
        pool_taken(physical, size);
    return status;
}

VGPU_API int cudaFreeAsync(void *address, void *stream)
{
    struct vgpu_range range;

    (void)stream;
    if (address && vgpu_range_find(address, &range))
        __atomic_sub_fetch(&pool_used[range.device], range.size, __ATOMIC_RELAXED);
    return cudaFree(address);
}

VGPU_API int cudaDeviceGetDefaultMemPool(void **pool, int ordinal)
{
    int physical = vgpu_physical(ordinal);

    if (physical < 0)
        return runtime_fail(CUDA_INVALID_DEVICE);
    *pool = (void *)(uintptr_t)(0x1000 + physical);
    return CUDA_OK;
}

static int pool_device(void *pool)
{
    uintptr_t device = (uintptr_t)pool - 0x1000;

    return device < VGPU_MAX_DEVICES ? (int)device : -1;
}

VGPU_API int cudaMemPoolGetAttribute(void *pool, int attribute, void *value)
{
    int device = pool_device(pool);
    uint64_t found = 0;

    if (device >= 0 && (attribute == POOL_RESERVED || attribute == POOL_USED))
        found = __atomic_load_n(&pool_used[device], __ATOMIC_RELAXED);
    else if (device >= 0 && (attribute == POOL_RESERVED_HIGH || attribute == POOL_USED_HIGH))
        found = __atomic_load_n(&pool_high[device], __ATOMIC_RELAXED);
    *(uint64_t *)value = found;
    return CUDA_OK;
}

VGPU_API int cudaMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    int device = pool_device(pool);

    (void)value;
    /* One counter for both: torch resets one right after the other. */
    if (device >= 0 && (attribute == POOL_RESERVED_HIGH || attribute == POOL_USED_HIGH))
        __atomic_store_n(&pool_high[device], __atomic_load_n(&pool_used[device], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    return CUDA_OK;
}

/* ---- host memory ------------------------------------------------------------ */

VGPU_API int cudaHostAlloc(void **out, size_t size, unsigned flags)
{
    int physical, status = runtime_device(&physical);
    size_t wanted = size ? size : 1;

    (void)flags;
    *out = NULL;
    if (status != CUDA_OK)
        return status;
    void *address = vgpu_map(wanted, 1);
    if (address && vgpu_range_add(address, wanted, VGPU_HOST, physical)) {
        vgpu_unmap(address, wanted);
        address = NULL;
    }
    *out = address;
    return runtime_fail(address ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

VGPU_API int cudaMallocHost(void **out, size_t size)
{
    return cudaHostAlloc(out, size, 0);
}

VGPU_API int cudaFreeHost(void *address)
{
    struct vgpu_range range;

    if (!address)
        return CUDA_OK;
    if (!vgpu_range_remove(address, &range))
        return runtime_fail(CUDA_INVALID_VALUE);
    vgpu_unmap(address, range.size);
    return CUDA_OK;
}

VGPU_API int cudaHostRegister(void *address, size_t size, unsigned flags)
{
    int physical, status = runtime_device(&physical);

    (void)flags;
    if (status != CUDA_OK)
        return status;
    return runtime_fail(vgpu_range_add(address, size, VGPU_HOST, physical) ? CUDA_OUT_OF_MEMORY : CUDA_OK);
}

VGPU_API int cudaHostUnregister(void *address)
{
    struct vgpu_range range;

    return runtime_fail(vgpu_range_remove(address, &range) ? CUDA_OK : CUDA_INVALID_VALUE);
}

VGPU_API int cudaHostGetDevicePointer(void **device_pointer, void *host_pointer, unsigned flags)
{
    (void)flags;
    *device_pointer = host_pointer;
    return CUDA_OK;
}

VGPU_API int cudaPointerGetAttributes(struct cuda_pointer_attributes *attributes, const void *address)
{
    struct vgpu_range range;

    memset(attributes, 0, sizeof *attributes);
    attributes->device = -1;
    if (!vgpu_range_find(address, &range) || range.kind == VGPU_RESERVED) {
        attributes->type = MEMORY_UNREGISTERED;
        attributes->host_pointer = (void *)address;
        return CUDA_OK;
    }
    attributes->type = range.kind == VGPU_HOST ? MEMORY_HOST : MEMORY_DEVICE;
    attributes->device = vgpu_ordinal(range.device);
    attributes->device_pointer = (void *)address;
    attributes->host_pointer = range.kind == VGPU_HOST ? (void *)address : NULL;
    return CUDA_OK;
}

/* ---- copies ------------------------------------------------------------------ */

VGPU_API int cudaMemcpy(void *to, const void *from, size_t size, int kind)
{
    (void)kind;
    vgpu_copy(to, from, size);
    return CUDA_OK;
}

VGPU_API int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream)
{
    (void)stream;
    return cudaMemcpy(to, from, size, kind);
}

VGPU_API int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size, void *stream)
{
    (void)to_device;
    (void)from_device;
    (void)stream;
    vgpu_copy(to, from, size);
    return CUDA_OK;
}

VGPU_API int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                               size_t height, int kind, void *stream)
{
    (void)kind;
    (void)stream;
    vgpu_copy_rows(to, to_pitch, from, from_pitch, width, height);
    return CUDA_OK;
}

VGPU_API int cudaMemset(void *to, int value, size_t size)
{
    vgpu_fill(to, value, size);
    return CUDA_OK;
}

VGPU_API int cudaMemsetAsync(void *to, int value, size_t size, void *stream)
{
    (void)stream;
    return cudaMemset(to, value, size);
}

/* ---- symbols: device variables, which no kernel reads ------------------------ */

VGPU_API int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, int kind)
{
    (void)symbol;
    (void)from;
    (void)size;
    (void)offset;
    (void)kind;
    return CUDA_OK;
}

VGPU_API int cudaGetSymbolAddress(void **out, const void *symbol)
{
    static char scratch[1 << 20]; /* larger than any device variable of torch */

    (void)symbol;
    *out = scratch;
    return CUDA_OK;
}

/* ---- the call counters of graphs' own memory ----------------------------------- */

VGPU_API int cudaDeviceGetGraphMemAttribute(int ordinal, int attribute, void *value)
{
    (void)ordinal;
    (void)attribute;
    *(uint64_t *)value = 0;
    return CUDA_OK;
}
