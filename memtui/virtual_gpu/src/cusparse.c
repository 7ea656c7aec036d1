/* Stand-in for libcusparse: handles. */
#include "core.h"

#include <stdlib.h>

#define CUSPARSE_ALLOC_FAILED 2

VGPU_API int cusparseCreate(void **handle)
{
    *handle = calloc(1, 64);
    return *handle ? 0 : CUSPARSE_ALLOC_FAILED;
}

VGPU_API int cusparseDestroy(void *handle)
{
    free(handle);
    return 0;
}
