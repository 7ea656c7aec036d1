/* Stand-in for libnccl: every rank pretends that the others hold what it holds,
 * so no rank waits for another. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#define NCCL_CUDA_ERROR 1
#define NCCL_SYSTEM_ERROR 2

struct communicator {
    int rank, size;
    int device;       /* physical index */
    uint64_t buffers; /* bytes charged to it */
};

struct unique_id {
    char bytes[128];
};

/* What NCCL allocates by itself grows with its channels, hence with the links of
 * a machine, and not beyond the third rank.  Measured on four A100 with NVLink:
 * 544 MiB for two ranks, 688 for more (github.com/NVIDIA/nccl, issue 964). */
static uint64_t buffer_bytes(int size)
{
    int64_t asked = vgpu_settings()->nccl_buffers;

    if (size < 2)
        return 0;
    return asked >= 0 ? (uint64_t)asked : size == 2 ? 544ull << 20 : 688ull << 20;
}

static int new_communicator(void **out, int rank, int size)
{
    struct communicator *made = malloc(sizeof *made);
    int device = vgpu_physical(vgpu_current_ordinal());
    uint64_t bytes = buffer_bytes(size);

    *out = NULL;
    if (!made)
        return NCCL_SYSTEM_ERROR;
    if (device < 0 || vgpu_enter_context(device) || (bytes && vgpu_take(device, bytes))) {
        vgpu_say("out of memory: NCCL's buffers of %llu MiB do not fit", (unsigned long long)bytes >> 20);
        free(made);
        return NCCL_CUDA_ERROR;
    }
    if (bytes)
        vgpu_note("estimated", "NCCL buffers");
    *made = (struct communicator){ rank, size, device, bytes };
    *out = made;
    return 0;
}

static int free_communicator(struct communicator *communicator)
{
    if (communicator->buffers)
        vgpu_give(communicator->device, communicator->buffers);
    free(communicator);
    return 0;
}

static size_t bytes_of(size_t count, int type)
{
    /* int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, float8 twice */
    static const unsigned char widths[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

    return count * (type >= 0 && (size_t)type < sizeof widths ? widths[type] : 1);
}

/* ---- the library ---------------------------------------------------------------- */

VGPU_API int ncclGetVersion(int *version)
{
    *version = 23007;
    return 0;
}

VGPU_API const char *ncclGetErrorString(int status)
{
    return status ? "virtual GPU NCCL error" : "no error";
}

VGPU_API const char *ncclGetLastError(void *communicator)
{
    (void)communicator;
    return "";
}

VGPU_API int ncclGetUniqueId(struct unique_id *id)
{
    memset(id, 1, sizeof *id);
    return 0;
}

/* ---- communicators ----------------------------------------------------------------- */

VGPU_API int ncclCommInitRank(void **out, int size, struct unique_id id, int rank)
{
    (void)id;
    return new_communicator(out, rank, size);
}

VGPU_API int ncclCommInitRankConfig(void **out, int size, struct unique_id id, int rank, void *config)
{
    (void)id;
    (void)config;
    return new_communicator(out, rank, size);
}

VGPU_API int ncclCommInitRankScalable(void **out, int size, int rank, int id_count, void *ids, void *config)
{
    (void)id_count;
    (void)ids;
    (void)config;
    return new_communicator(out, rank, size);
}

VGPU_API int ncclCommSplit(struct communicator *communicator, int color, int key, void **out, void *config)
{
    (void)color;
    (void)key;
    (void)config;
    return new_communicator(out, communicator->rank, communicator->size);
}

VGPU_API int ncclCommDestroy(struct communicator *communicator)
{
    return free_communicator(communicator);
}

VGPU_API int ncclCommAbort(struct communicator *communicator)
{
    return free_communicator(communicator);
}

VGPU_API int ncclCommGetAsyncError(void *communicator, int *status)
{
    (void)communicator;
    *status = 0;
    return 0;
}

VGPU_API int ncclCommCount(struct communicator *communicator, int *size)
{
    *size = communicator->size;
    return 0;
}

VGPU_API int ncclCommUserRank(struct communicator *communicator, int *rank)
{
    *rank = communicator->rank;
    return 0;
}

/* ---- collectives --------------------------------------------------------------------- */

VGPU_API int ncclAllGather(const void *from, char *to, size_t count, int type, struct communicator *communicator,
                           void *stream)
{
    size_t bytes = bytes_of(count, type);

    (void)stream;
    for (int rank = 0; rank < communicator->size; rank++)
        vgpu_copy(to + (size_t)rank * bytes, from, bytes);
    return 0;
}

VGPU_API int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, void *communicator,
                           void *stream)
{
    (void)operation;
    (void)communicator;
    (void)stream;
    vgpu_copy(to, from, bytes_of(count, type));
    return 0;
}

VGPU_API int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *communicator,
                           void *stream)
{
    (void)root;
    (void)communicator;
    (void)stream;
    vgpu_copy(to, from, bytes_of(count, type));
    return 0;
}
