/* Stand-in for libcublas: handles.  The arithmetic is generated as "done". */
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
