/* Stand-in for libcudart: streams, events and graphs.  Work is complete as soon
 * as it is submitted, so every query succeeds and every wait returns at once.
 * Between two events is the host's time, and what is known of kernels'. */
#define _GNU_SOURCE
#include "runtime.h"

#include <stdlib.h>
#include <time.h>

struct stream {
    int priority;
    int capturing;
    unsigned long long capture_id;
};

struct event {
    struct timespec at;
    uint64_t kernels; /* nanoseconds that they had taken by then */
};

static struct stream default_stream;
static unsigned long long next_capture = 1;

/* 0, 1 and 2 are the default, the legacy and the per-thread stream. */
static struct stream *stream_of(void *handle)
{
    return (uintptr_t)handle <= 2 ? &default_stream : handle;
}

/* ---- streams ---------------------------------------------------------------- */

VGPU_API int cudaStreamCreateWithPriority(void **out, unsigned flags, int priority)
{
    int physical, status = runtime_device(&physical);

    (void)flags;
    if (status != CUDA_OK)
        return status;
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return runtime_fail(CUDA_OUT_OF_MEMORY);
    stream->priority = priority;
    *out = stream;
    return CUDA_OK;
}

VGPU_API int cudaStreamCreateWithFlags(void **out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

VGPU_API int cudaStreamCreate(void **out)
{
    return cudaStreamCreateWithPriority(out, 0, 0);
}

VGPU_API int cudaStreamDestroy(void *handle)
{
    if (stream_of(handle) != &default_stream)
        free(handle);
    return CUDA_OK;
}

VGPU_API int cudaStreamGetPriority(void *handle, int *priority)
{
    *priority = stream_of(handle)->priority;
    return CUDA_OK;
}

VGPU_API int cudaStreamQuery(void *handle)
{
    (void)handle;
    return CUDA_OK;
}

VGPU_API int cudaStreamSynchronize(void *handle)
{
    (void)handle;
    return CUDA_OK;
}

VGPU_API int cudaStreamWaitEvent(void *handle, void *event, unsigned flags)
{
    (void)handle;
    (void)event;
    (void)flags;
    return CUDA_OK;
}

VGPU_API int cudaStreamAddCallback(void *handle, void (*callback)(void *, int, void *), void *data, unsigned flags)
{
    (void)flags;
    callback(handle, CUDA_OK, data);
    return CUDA_OK;
}

VGPU_API int cudaLaunchHostFunc(void *handle, void (*function)(void *), void *data)
{
    (void)handle;
    function(data);
    return CUDA_OK;
}

/* ---- events ------------------------------------------------------------------ */

VGPU_API int cudaEventCreateWithFlags(void **out, unsigned flags)
{
    int physical, status = runtime_device(&physical);

    (void)flags;
    if (status != CUDA_OK)
        return status;
    *out = calloc(1, sizeof(struct event));
    return runtime_fail(*out ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

VGPU_API int cudaEventCreate(void **out)
{
    return cudaEventCreateWithFlags(out, 0);
}

VGPU_API int cudaEventDestroy(void *event)
{
    free(event);
    return CUDA_OK;
}

VGPU_API int cudaEventRecord(void *event, void *stream)
{
    struct event *recorded = event;

    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &recorded->at);
    recorded->kernels = vgpu_kernels_took();
    return CUDA_OK;
}

VGPU_API int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags)
{
    (void)flags;
    return cudaEventRecord(event, stream);
}

VGPU_API int cudaEventQuery(void *event)
{
    (void)event;
    return CUDA_OK;
}

VGPU_API int cudaEventSynchronize(void *event)
{
    (void)event;
    return CUDA_OK;
}

VGPU_API int cudaEventElapsedTime(float *milliseconds, void *start, void *end)
{
    const struct event *from = start, *to = end;
    double host = (double)(to->at.tv_sec - from->at.tv_sec) * 1e3 + (double)(to->at.tv_nsec - from->at.tv_nsec) / 1e6;

    *milliseconds = (float)(host + (double)(int64_t)(to->kernels - from->kernels) / 1e6);
    return CUDA_OK;
}

VGPU_API int cudaEventElapsedTime_v2(float *milliseconds, void *start, void *end)
{
    return cudaEventElapsedTime(milliseconds, start, end);
}

/* ---- capture and graphs: a graph is a handle without content ------------------- */

VGPU_API int cudaStreamBeginCapture(void *handle, int mode)
{
    struct stream *stream = stream_of(handle);

    (void)mode;
    stream->capturing = 1;
    stream->capture_id = __atomic_fetch_add(&next_capture, 1, __ATOMIC_RELAXED);
    return CUDA_OK;
}

VGPU_API int cudaStreamEndCapture(void *handle, void **graph)
{
    stream_of(handle)->capturing = 0;
    *graph = calloc(1, 64);
    return runtime_fail(*graph ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

VGPU_API int cudaStreamIsCapturing(void *handle, int *status)
{
    *status = stream_of(handle)->capturing; /* 1 is "active" */
    return CUDA_OK;
}

/* With the edges' data, as CUDA 13 has it and CUDA 12 under the name _v3. */
VGPU_API int cudaStreamGetCaptureInfo_v3(void *handle, int *status, unsigned long long *id, void **graph,
                                         const void **dependencies, const void **edges, size_t *count)
{
    struct stream *stream = stream_of(handle);

    *status = stream->capturing;
    if (id)
        *id = stream->capture_id;
    if (graph)
        *graph = stream;
    if (dependencies)
        *dependencies = NULL;
    if (edges)
        *edges = NULL;
    if (count)
        *count = 0;
    return CUDA_OK;
}

VGPU_API int cudaStreamGetCaptureInfo_v2(void *handle, int *status, unsigned long long *id, void **graph,
                                         const void **dependencies, size_t *count)
{
    return cudaStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, NULL, count);
}

#if VGPU_CUDA_VERSION >= 13000
VGPU_API int cudaStreamGetCaptureInfo(void *handle, int *status, unsigned long long *id, void **graph,
                                      const void **dependencies, const void **edges, size_t *count)
{
    return cudaStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, edges, count);
}
#else
VGPU_API int cudaStreamGetCaptureInfo(void *handle, int *status, unsigned long long *id)
{
    return cudaStreamGetCaptureInfo_v3(handle, status, id, NULL, NULL, NULL, NULL);
}
#endif

VGPU_API int cudaThreadExchangeStreamCaptureMode(int *mode)
{
    *mode = 2; /* relaxed */
    return CUDA_OK;
}

/* One node: torch warns of an empty graph. */
VGPU_API int cudaGraphGetNodes(void *graph, void **nodes, size_t *count)
{
    (void)graph;
    if (nodes && *count)
        nodes[0] = NULL;
    *count = 1;
    return CUDA_OK;
}

VGPU_API int cudaGraphInstantiateWithFlags(void **out, void *graph, unsigned long long flags)
{
    (void)graph;
    (void)flags;
    *out = calloc(1, 64);
    return runtime_fail(*out ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

VGPU_API int cudaGraphInstantiate(void **out, void *graph, unsigned long long flags)
{
    return cudaGraphInstantiateWithFlags(out, graph, flags);
}

VGPU_API int cudaGraphDestroy(void *graph)
{
    free(graph);
    return CUDA_OK;
}

VGPU_API int cudaGraphExecDestroy(void *instance)
{
    free(instance);
    return CUDA_OK;
}
