/* Stand-in for libcublas: handles, and the factorisations that tell the host
 * how they went.  All other arithmetic is generated as "done". */
#include "core.h"

#include <stdlib.h>

#define CUBLAS_ALLOC_FAILED 3

VGPU_API int cublasCreate_v2(void **handle)
{
    *handle = calloc(1, 64);
    return *handle ? 0 : CUBLAS_ALLOC_FAILED;
}

VGPU_API int cublasDestroy_v2(void *handle)
{
    free(handle);
    return 0;
}

VGPU_API int cublasGetMathMode(void *handle, int *mode)
{
    (void)handle;
    *mode = 0;
    return 0;
}

VGPU_API int cublasGetPointerMode_v2(void *handle, int *mode)
{
    (void)handle;
    *mode = 0;
    return 0;
}

VGPU_API int cublasGetVersion_v2(void *handle, int *version)
{
    (void)handle;
    *version = 130100;
    return 0;
}

/* ---- batches: the host's own status, which torch asserts to be 0 ------------- */

#define EACH(name, parameters)                                                                                        \
    VGPU_API int cublasS##name parameters { *info = 0; return 0; }                                                    \
    VGPU_API int cublasD##name parameters { *info = 0; return 0; }                                                    \
    VGPU_API int cublasC##name parameters { *info = 0; return 0; }                                                    \
    VGPU_API int cublasZ##name parameters { *info = 0; return 0; }

#pragma GCC diagnostic ignored "-Wunused-parameter" /* each interface has all of cuBLAS's */

EACH(geqrfBatched, (void *handle, int m, int n, void *a, int lda, void *tau, int *info, int batch))
EACH(gelsBatched, (void *handle, int transposed, int m, int n, int columns, void *a, int lda, void *c, int ldc,
                   int *info, int *device_info, int batch))
EACH(getrsBatched, (void *handle, int transposed, int n, int columns, const void *a, int lda, const int *pivots,
                    void *b, int ldb, int *info, int batch))
