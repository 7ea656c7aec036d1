/* Stand-in for libcublasLt: descriptors, and one algorithm that needs no
 * workspace (torch's own workspace is allocated all the same). */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#define CUBLAS_ALLOC_FAILED 3

struct heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};

static int new_handle(void **out)
{
    *out = calloc(1, 256);
    return *out ? 0 : CUBLAS_ALLOC_FAILED;
}

static int free_handle(void *handle)
{
    free(handle);
    return 0;
}

VGPU_API size_t cublasLtGetVersion(void)
{
    return 130100;
}

VGPU_API int cublasLtCreate(void **out)
{
    return new_handle(out);
}

VGPU_API int cublasLtDestroy(void *handle)
{
    return free_handle(handle);
}

VGPU_API int cublasLtMatmulDescCreate(void **out, int compute_type, int scale_type)
{
    (void)compute_type;
    (void)scale_type;
    return new_handle(out);
}

VGPU_API int cublasLtMatmulDescDestroy(void *descriptor)
{
    return free_handle(descriptor);
}

VGPU_API int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns, int64_t leading)
{
    (void)type;
    (void)rows;
    (void)columns;
    (void)leading;
    return new_handle(out);
}

VGPU_API int cublasLtMatrixLayoutDestroy(void *layout)
{
    return free_handle(layout);
}

VGPU_API int cublasLtMatmulPreferenceCreate(void **out)
{
    return new_handle(out);
}

VGPU_API int cublasLtMatmulPreferenceDestroy(void *preference)
{
    return free_handle(preference);
}

VGPU_API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d,
                                            void *preference, int wanted, struct heuristic *out, int *found)
{
    (void)handle;
    (void)operation;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    (void)preference;
    *found = wanted > 0;
    if (*found) {
        memset(out, 0, sizeof *out);
        out->waves = 1.0f;
    }
    return 0;
}
