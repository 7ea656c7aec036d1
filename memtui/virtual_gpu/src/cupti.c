/* Stand-in for libcupti: the profiler starts and records no device activity. */
#include "core.h"

VGPU_API int cuptiGetVersion(uint32_t *version)
{
    *version = 28;
    return 0;
}

VGPU_API int cuptiGetResultString(int status, const char **text)
{
    *text = status ? "virtual GPU CUPTI error" : "CUPTI_SUCCESS";
    return 0;
}
