/* Stand-in for libcudnn: descriptors, and the convolution queries of cuDNN 7
 * (torch asks them under TORCH_CUDNN_V8_API_DISABLED=1).  Recurrent networks
 * are in cudnn_rnn.c; the graph API is not simulated and says so.  The builder passes
 * VGPU_CUDNN_MAJOR, the number in the SONAME. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#ifndef VGPU_CUDNN_MAJOR
#define VGPU_CUDNN_MAJOR 9
#endif

#define CUDNN_ALLOC_FAILED 2

#if VGPU_CUDNN_MAJOR >= 9
#define CUDNN_NOT_SUPPORTED 3000
#define CUDNN_MINOR 24
#define CUDNN_PATCH 0
#define CUDNN_VERSION (VGPU_CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCH)
#else
#define CUDNN_NOT_SUPPORTED 9
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

/* ---- descriptors ---------------------------------------------------------------- */

#define DESCRIPTOR(name)                             \
    VGPU_API int cudnnCreate##name(void **out)       \
    {                                                \
        return new_handle(out);                      \
    }                                                \
    VGPU_API int cudnnDestroy##name(void *handle)    \
    {                                                \
        return free_handle(handle);                  \
    }

DESCRIPTOR(TensorDescriptor)
DESCRIPTOR(FilterDescriptor)
DESCRIPTOR(ConvolutionDescriptor)
DESCRIPTOR(PoolingDescriptor)
DESCRIPTOR(DropoutDescriptor)
DESCRIPTOR(ActivationDescriptor)
DESCRIPTOR(CTCLossDescriptor)
DESCRIPTOR(SpatialTransformerDescriptor)

/* ---- convolutions ------------------------------------------------------------------ */

struct performance {
    int algorithm, status;
    float milliseconds;
    size_t workspace;
    int determinism, math_type;
    int reserved[3];
};

static int one_algorithm(int wanted, int *found, struct performance *out)
{
    *found = wanted > 0;
    if (*found) {
        memset(out, 0, sizeof *out);
        out->algorithm = 1;
        out->milliseconds = 1.0f;
        out->workspace = vgpu_settings()->cudnn_workspace;
        out->determinism = 1;
    }
    return 0;
}

#define CONVOLUTION(name)                                                                                            \
    VGPU_API int cudnnGetConvolution##name##Algorithm_v7(void *handle, void *a, void *b, void *convolution, void *c, \
                                                         int wanted, int *found, struct performance *out)            \
    {                                                                                                                \
        (void)handle, (void)a, (void)b, (void)convolution, (void)c;                                                  \
        return one_algorithm(wanted, found, out);                                                                    \
    }                                                                                                                \
    VGPU_API int cudnnFindConvolution##name##AlgorithmEx(void *handle, void *a, void *a_data, void *b, void *b_data, \
                                                         void *convolution, void *c, void *c_data, int wanted,       \
                                                         int *found, struct performance *out, void *workspace,       \
                                                         size_t size)                                                \
    {                                                                                                                \
        (void)handle, (void)a, (void)a_data, (void)b, (void)b_data, (void)convolution, (void)c, (void)c_data;        \
        (void)workspace, (void)size;                                                                                 \
        return one_algorithm(wanted, found, out);                                                                    \
    }                                                                                                                \
    VGPU_API int cudnnGetConvolution##name##WorkspaceSize(void *handle, void *a, void *b, void *convolution,         \
                                                          void *c, int algorithm, size_t *bytes)                     \
    {                                                                                                                \
        (void)handle, (void)a, (void)b, (void)convolution, (void)c, (void)algorithm;                                 \
        *bytes = vgpu_settings()->cudnn_workspace;                                                                   \
        return 0;                                                                                                    \
    }

CONVOLUTION(Forward)
CONVOLUTION(BackwardData)
CONVOLUTION(BackwardFilter)

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
