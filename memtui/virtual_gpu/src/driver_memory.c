/* Stand-in for libcuda: virtual memory management, which expandable segments
 * are made of, and questions about pointers. */
#include "core.h"
#include "cuda_abi.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A piece of physical memory; handles to it are pointers. */
struct piece {
    size_t size;
    int device; /* physical index */
    int references;
};

struct mapping {
    uintptr_t address;
    struct piece *piece;
    struct mapping *next;
};

static struct mapping *mappings;

/* With the lock held. */
static void release(struct piece *piece)
{
    if (--piece->references)
        return;
    vgpu_give(piece->device, piece->size);
    free(piece);
}

/* ---- addresses ------------------------------------------------------------------ */

VGPU_API int cuMemGetAllocationGranularity(size_t *bytes, const struct cu_allocation_properties *properties, int which)
{
    (void)properties;
    (void)which;
    *bytes = VGPU_PAGE;
    return CUDA_OK;
}

VGPU_API int cuMemAddressReserve(uintptr_t *out, size_t size, size_t alignment, uintptr_t hint,
                                 unsigned long long flags)
{
    (void)alignment;
    (void)hint;
    (void)flags;
    void *address = vgpu_map(size, 0);
    if (!address)
        return CUDA_OUT_OF_MEMORY;
    if (vgpu_range_add(address, size, VGPU_RESERVED, 0)) {
        vgpu_unmap(address, size);
        return CUDA_OUT_OF_MEMORY;
    }
    vgpu_trace("cuMemAddressReserve(%zu) = %p", size, address);
    *out = (uintptr_t)address;
    return CUDA_OK;
}

VGPU_API int cuMemAddressFree(uintptr_t address, size_t size)
{
    struct vgpu_range range;

    if (!vgpu_range_remove((void *)address, &range))
        return CUDA_INVALID_VALUE;
    vgpu_unmap((void *)address, size);
    return CUDA_OK;
}

/* ---- physical memory ---------------------------------------------------------------- */

VGPU_API int cuMemCreate(void **handle, size_t size, const struct cu_allocation_properties *properties,
                         unsigned long long flags)
{
    int physical = vgpu_physical(properties->location.id);

    (void)flags;
    if (physical < 0)
        return CUDA_INVALID_DEVICE;
    if (!size || size % VGPU_PAGE)
        return CUDA_INVALID_VALUE;
    if (vgpu_enter_context(physical) || vgpu_take(physical, size)) {
        vgpu_trace("cuMemCreate(%zu) on device %d: out of memory", size, physical);
        return CUDA_OUT_OF_MEMORY;
    }
    struct piece *piece = malloc(sizeof *piece);
    if (!piece) {
        vgpu_give(physical, size);
        return CUDA_OUT_OF_MEMORY;
    }
    *piece = (struct piece){ size, physical, 1 };
    *handle = piece;
    vgpu_trace("cuMemCreate(%zu) on device %d", size, physical);
    return CUDA_OK;
}

VGPU_API int cuMemRelease(void *handle)
{
    vgpu_lock();
    release(handle);
    vgpu_unlock();
    return CUDA_OK;
}

VGPU_API int cuMemMap(uintptr_t address, size_t size, size_t offset, void *handle, unsigned long long flags)
{
    struct piece *piece = handle;

    (void)flags;
    if (offset || size != piece->size)
        return CUDA_INVALID_VALUE;
    struct mapping *mapping = malloc(sizeof *mapping);
    if (!mapping || vgpu_range_add((void *)address, size, VGPU_DEVICE, piece->device)) {
        free(mapping);
        return CUDA_OUT_OF_MEMORY;
    }
    vgpu_lock();
    *mapping = (struct mapping){ address, piece, mappings };
    mappings = mapping;
    piece->references++;
    vgpu_unlock();
    return CUDA_OK;
}

VGPU_API int cuMemSetAccess(uintptr_t address, size_t size, const void *descriptors, size_t count)
{
    (void)descriptors;
    (void)count;
    return mprotect((void *)address, size, PROT_READ | PROT_WRITE) ? CUDA_OUT_OF_MEMORY : CUDA_OK;
}

VGPU_API int cuMemUnmap(uintptr_t address, size_t size)
{
    vgpu_lock();
    for (struct mapping **link = &mappings; *link;) {
        struct mapping *mapping = *link;
        struct vgpu_range range;
        if (mapping->address < address || mapping->address >= address + size) {
            link = &mapping->next;
            continue;
        }
        vgpu_range_remove((void *)mapping->address, &range);
        release(mapping->piece);
        *link = mapping->next;
        free(mapping);
    }
    vgpu_unlock();
    madvise((void *)address, size, MADV_DONTNEED);
    mprotect((void *)address, size, PROT_NONE);
    return CUDA_OK;
}

VGPU_API int cuMemRetainAllocationHandle(void **handle, void *address)
{
    int status = CUDA_INVALID_VALUE;

    vgpu_lock();
    for (struct mapping *mapping = mappings; mapping; mapping = mapping->next) {
        if ((uintptr_t)address - mapping->address < mapping->piece->size) {
            mapping->piece->references++;
            *handle = mapping->piece;
            status = CUDA_OK;
            break;
        }
    }
    vgpu_unlock();
    return status;
}

VGPU_API int cuMemGetAllocationPropertiesFromHandle(struct cu_allocation_properties *properties, void *handle)
{
    memset(properties, 0, sizeof *properties);
    properties->type = CU_PINNED;
    properties->location.type = CU_ON_DEVICE;
    properties->location.id = vgpu_ordinal(((struct piece *)handle)->device);
    return CUDA_OK;
}

/* Another process cannot have the memory: it is not memory. */
VGPU_API int cuMemExportToShareableHandle(void *out, void *handle, int type, unsigned long long flags)
{
    (void)out;
    (void)handle;
    (void)type;
    (void)flags;
    vgpu_note("refused", "cuMemExportToShareableHandle");
    return CUDA_NOT_SUPPORTED;
}

VGPU_API int cuMemImportFromShareableHandle(void **handle, void *shared, int type)
{
    (void)handle;
    (void)shared;
    (void)type;
    return CUDA_NOT_SUPPORTED;
}

VGPU_API int cuMulticastCreate(void **handle, const void *properties)
{
    (void)handle;
    (void)properties;
    return CUDA_NOT_SUPPORTED;
}

/* ---- questions about pointers ---------------------------------------------------------- */

VGPU_API int cuMemGetAddressRange_v2(uintptr_t *base, size_t *size, uintptr_t address)
{
    struct vgpu_range range;

    if (!vgpu_range_find((void *)address, &range))
        return CUDA_INVALID_VALUE;
    if (base)
        *base = range.base;
    if (size)
        *size = range.size;
    return CUDA_OK;
}

enum {
    POINTER_CONTEXT = 1,
    POINTER_MEMORY_TYPE = 2,
    POINTER_DEVICE_POINTER = 3,
    POINTER_HOST_POINTER = 4,
    POINTER_ORDINAL = 9,
    POINTER_RANGE_START = 11,
    POINTER_RANGE_SIZE = 12,
};

VGPU_API int cuPointerGetAttribute(void *value, int attribute, uintptr_t address)
{
    struct vgpu_range range;

    if (!vgpu_range_find((void *)address, &range))
        return CUDA_INVALID_VALUE;
    int ordinal = vgpu_ordinal(range.device);
    switch (attribute) {
    case POINTER_CONTEXT: *(void **)value = (void *)(uintptr_t)(0x100 + ordinal); break;
    case POINTER_MEMORY_TYPE: *(unsigned *)value = range.kind == VGPU_HOST ? MEMORY_HOST : MEMORY_DEVICE; break;
    case POINTER_DEVICE_POINTER: *(uintptr_t *)value = address; break;
    case POINTER_HOST_POINTER: *(uintptr_t *)value = range.kind == VGPU_HOST ? address : 0; break;
    case POINTER_ORDINAL: *(int *)value = ordinal; break;
    case POINTER_RANGE_START: *(uintptr_t *)value = range.base; break;
    case POINTER_RANGE_SIZE: *(size_t *)value = range.size; break;
    default: *(int *)value = 0; /* every other attribute is an int or smaller question */
    }
    return CUDA_OK;
}

VGPU_API int cuPointerGetAttributes(unsigned count, const int *attributes, void **values, uintptr_t address)
{
    for (unsigned i = 0; i < count; i++) {
        int status = cuPointerGetAttribute(values[i], attributes[i], address);
        if (status != CUDA_OK)
            return status;
    }
    return CUDA_OK;
}

/* ---- writes ------------------------------------------------------------------------------ */

VGPU_API int cuMemsetD32Async(uintptr_t address, unsigned value, size_t count, void *stream)
{
    (void)stream;
    if (!value) {
        vgpu_fill((void *)address, 0, 4 * count);
    } else if (4 * count <= vgpu_settings()->copy_max) {
        for (size_t i = 0; i < count; i++)
            ((unsigned *)address)[i] = value;
    }
    return CUDA_OK;
}

VGPU_API int cuStreamWriteValue32(void *stream, uintptr_t address, uint32_t value, unsigned flags)
{
    (void)stream;
    (void)flags;
    *(uint32_t *)address = value;
    return CUDA_OK;
}
