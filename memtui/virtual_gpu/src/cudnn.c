/* Stand-in for libcudnn: the library itself, dropout and batch normalisation.
 * Convolutions are in cudnn_convolution.c, recurrent networks in cudnn_rnn.c;
 * the graph API is not simulated and says so. */
#include "core.h"
#include "cudnn.h"

#include <stdlib.h>

#if VGPU_CUDNN_MAJOR >= 9
#define CUDNN_MINOR 24
#define CUDNN_PATCH 0
#define CUDNN_VERSION (VGPU_CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCH)
#else
#define CUDNN_MINOR 9
#define CUDNN_PATCH 7
#define CUDNN_VERSION (VGPU_CUDNN_MAJOR * 1000 + CUDNN_MINOR * 100 + CUDNN_PATCH)
#endif

/* ---- the library ------------------------------------------------------------- */

static int new_handle(void **out)
{
    *out = calloc(1, 256);
    return *out ? 0 : CUDNN_ALLOC_FAILED;
}

static int free_handle(void *handle)
{
    free(handle);
    return 0;
}

VGPU_API size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

VGPU_API size_t cudnnGetCudartVersion(void)
{
    return VGPU_CUDA_VERSION;
}

VGPU_API int cudnnGetProperty(int which, int *value)
{
    *value = which == 0 ? VGPU_CUDNN_MAJOR : which == 1 ? CUDNN_MINOR : CUDNN_PATCH;
    return 0;
}

VGPU_API const char *cudnnGetErrorString(int status)
{
    return status == CUDNN_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_VIRTUAL_GPU";
}

VGPU_API int cudnnCreate(void **out)
{
    return new_handle(out);
}

VGPU_API int cudnnDestroy(void *handle)
{
    return free_handle(handle);
}

VGPU_API int cudnnBackendFinalize(void *descriptor)
{
    (void)descriptor;
    return CUDNN_NOT_SUPPORTED;
}

/* ---- dropout and batch normalisation ------------------------------------------------- */

VGPU_API int cudnnDropoutGetStatesSize(void *handle, size_t *bytes)
{
    (void)handle;
    *bytes = 1 << 20;
    return 0;
}

VGPU_API int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int operation, void *x,
                                                                      void *z, void *y, void *scale, void *activation,
                                                                      size_t *bytes)
{
    (void)handle, (void)mode, (void)operation, (void)x, (void)z, (void)y, (void)scale, (void)activation;
    *bytes = 0;
    return 0;
}

VGPU_API int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int operation,
                                                                  void *activation, void *x, size_t *bytes)
{
    (void)handle, (void)mode, (void)operation, (void)activation, (void)x;
    *bytes = 0;
    return 0;
}

VGPU_API int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int operation, void *x, void *y,
                                                               void *dy, void *dz, void *dx, void *scale,
                                                               void *activation, size_t *bytes)
{
    (void)handle, (void)mode, (void)operation, (void)x, (void)y, (void)dy, (void)dz, (void)dx, (void)scale;
    (void)activation;
    *bytes = 0;
    return 0;
}

#define NORMALISATION(name)                           \
    VGPU_API int cudnnBatchNormalization##name(void)  \
    {                                                 \
        return cudnn_load(KERNELS_NORMALISATION);     \
    }

NORMALISATION(ForwardTrainingEx)
NORMALISATION(ForwardInference)
NORMALISATION(BackwardEx)
