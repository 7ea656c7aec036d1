/* How many elements nonzero() is taken to find: a share that is set, of the
 * elements that it counted.  It counts them by one reduction over its operand,
 * whose kernel's mangled name says what it is, and of which type its third
 * argument, the number of elements. */
#include "runtime.h"

#include <string.h>

#define MAX_COUNTERS 256

static struct {
    const void *function;
    int is_64_bit;
} counters[MAX_COUNTERS];

static int counter_count;

/* Called by the constructors of torch's libraries, one after another. */
VGPU_API void __cudaRegisterFunction(void **binary, const void *function, char *device_function, const char *name,
                                     int thread_limit, void *thread, void *block, void *block_size, void *grid_size,
                                     int *warp_size)
{
    static const char policy[] = "policy_hubIi"; /* of an int sum; the next letter is the type of its length */
    const char *found;

    (void)binary, (void)device_function, (void)thread_limit, (void)thread, (void)block, (void)block_size;
    (void)grid_size, (void)warp_size;
    if (vgpu_settings()->selected <= 0 || counter_count == MAX_COUNTERS || !(found = strstr(name, "DeviceReduce"))
        || !(found = strstr(found, policy)) || !strstr(found, "NonZeroOp"))
        return;
    char type = found[sizeof policy - 1];
    if (!strchr("ijlmxy", type))
        return;
    counters[counter_count].function = function;
    counters[counter_count++].is_64_bit = type != 'i' && type != 'j';
}

void runtime_note_selection(const void *function, void *const *arguments)
{
    for (int i = 0; i < counter_count; i++) {
        if (counters[i].function == function)
            vgpu_select_from(counters[i].is_64_bit ? *(const uint64_t *)arguments[2]
                                                   : *(const uint32_t *)arguments[2]);
    }
}
