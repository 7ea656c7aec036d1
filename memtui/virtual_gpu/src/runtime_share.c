/* Stand-in for libcudart: memory of another process.  Its bytes are charged to
 * the process that allocated it; the other gets addresses of the same size, and
 * values do not pass. */
#include "runtime.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HANDLE_MAGIC 0x45524148534d454dull

struct share {
    uint64_t magic;
    uint64_t size;
    int64_t device; /* physical index */
};

/* CUDA's opaque 64 bytes, which callers pass by value. */
struct ipc_handle {
    char bytes[64];
};

VGPU_API int cudaIpcGetMemHandle(struct ipc_handle *handle, void *address)
{
    struct vgpu_range range;

    if (!vgpu_range_find(address, &range) || range.kind != VGPU_DEVICE)
        return runtime_fail(CUDA_INVALID_VALUE);
    struct share share = { HANDLE_MAGIC, range.size, range.device };
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &share, sizeof share);
    /* The receiver keeps one mapping for each handle it has seen. */
    snprintf(handle->bytes + sizeof share, sizeof *handle - sizeof share, "%d %llx", (int)getpid(),
             (unsigned long long)range.base);
    return CUDA_OK;
}

VGPU_API int cudaIpcOpenMemHandle(void **out, struct ipc_handle handle, unsigned flags)
{
    int physical, status = runtime_device(&physical);
    struct share share;

    (void)flags;
    *out = NULL;
    memcpy(&share, &handle, sizeof share);
    if (status != CUDA_OK)
        return status;
    if (share.magic != HANDLE_MAGIC || share.device < 0 || vgpu_ordinal((int)share.device) < 0)
        return runtime_fail(CUDA_INVALID_VALUE);
    void *address = vgpu_map(share.size, 1);
    if (address && vgpu_range_add(address, share.size, VGPU_SHARED, (int)share.device)) {
        vgpu_unmap(address, share.size);
        address = NULL;
    }
    vgpu_trace("cudaIpcOpenMemHandle(%llu) on device %d = %p", (unsigned long long)share.size, (int)share.device,
               address);
    *out = address;
    return runtime_fail(address ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

VGPU_API int cudaIpcCloseMemHandle(void *address)
{
    struct vgpu_range range;

    if (!vgpu_range_remove(address, &range))
        return runtime_fail(CUDA_INVALID_VALUE);
    vgpu_unmap(address, range.size);
    return CUDA_OK;
}

/* ---- events: complete as soon as they are recorded, here as elsewhere ------------ */

VGPU_API int cudaIpcGetEventHandle(struct ipc_handle *handle, void *event)
{
    (void)event;
    memset(handle, 0, sizeof *handle);
    return CUDA_OK;
}

VGPU_API int cudaIpcOpenEventHandle(void **out, struct ipc_handle handle)
{
    (void)handle;
    return cudaEventCreateWithFlags(out, 0);
}
