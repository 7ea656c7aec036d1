/* Stand-in for libcusolver: handles.  Factorisations are not simulated. */
#include "core.h"

#include <stdlib.h>

#define CUSOLVER_ALLOC_FAILED 2

VGPU_API int cusolverDnCreate(void **handle)
{
    *handle = calloc(1, 64);
    return *handle ? 0 : CUSOLVER_ALLOC_FAILED;
}

VGPU_API int cusolverDnDestroy(void *handle)
{
    free(handle);
    return 0;
}
