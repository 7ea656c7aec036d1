/* Stand-in for libnccl: every rank pretends that the others hold what it holds,
 * so no rank waits for another. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#define NCCL_SYSTEM_ERROR 2

struct communicator {
    int rank, size;
};

struct unique_id {
    char bytes[128];
};

static int new_communicator(void **out, int rank, int size)
{
    struct communicator *made = malloc(sizeof *made);

    if (!made)
        return NCCL_SYSTEM_ERROR;
    *made = (struct communicator){ rank, size };
    *out = made;
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
    free(communicator);
    return 0;
}

VGPU_API int ncclCommAbort(struct communicator *communicator)
{
    free(communicator);
    return 0;
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
