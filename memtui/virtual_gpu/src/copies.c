/* Data movement.  Kernels compute nothing, so device bytes mean something only
 * where a copy or a memset wrote them and no kernel has been launched since.
 * Any other read returns zeros: a loss is 0, a count of nonzeros is 0, no
 * overflow was found.  That keeps runs repeatable. */
#include "host_reads.h"

#include <string.h>

#define REMEMBERED 64

static struct {
    uintptr_t address;
    size_t size;
    uint64_t epoch; /* kernels launched before it was written */
} written[REMEMBERED];

static unsigned next_written;
static uint64_t launches, zero_reads;

VGPU_API void vgpu_kernel_launched(void)
{
    __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
}

VGPU_API uint64_t vgpu_zero_reads(void)
{
    return __atomic_load_n(&zero_reads, __ATOMIC_RELAXED);
}

static void remember(const void *address, size_t size)
{
    vgpu_lock();
    unsigned at = next_written++ % REMEMBERED;
    written[at].address = (uintptr_t)address;
    written[at].size = size;
    written[at].epoch = __atomic_load_n(&launches, __ATOMIC_RELAXED);
    vgpu_unlock();
}

static int is_remembered(const void *address, size_t size)
{
    uint64_t now = __atomic_load_n(&launches, __ATOMIC_RELAXED);
    int found = 0;

    vgpu_lock();
    for (unsigned i = 0; i < REMEMBERED && !found; i++)
        found = written[i].size >= size && written[i].epoch == now
                && (uintptr_t)address - written[i].address <= written[i].size - size;
    vgpu_unlock();
    return found;
}

static int is_device_memory(const void *address)
{
    struct vgpu_range range;

    return vgpu_range_find(address, &range) && (range.kind == VGPU_DEVICE || range.kind == VGPU_SHARED);
}

/* Returns whether a read by the host was answered with zeros. */
static int copy(void *to, const void *from, size_t size)
{
    if (!size)
        return 0;
    int to_device = is_device_memory(to);
    int known = !is_device_memory(from) || is_remembered(from, size);

    if (to_device && (!known || size > vgpu_settings()->copy_max))
        return 0; /* would only commit host pages */
    if (!known) {
        memset(to, 0, size);
        return 1;
    }
    memmove(to, from, size);
    if (to_device)
        remember(to, size);
    return 0;
}

static void zeros_were_read(size_t size)
{
    __atomic_add_fetch(&zero_reads, 1, __ATOMIC_RELAXED);
    vgpu_trace("a read of %zu computed bytes was answered with zeros", size);
    host_read_note();
}

/* ---- what nonzero() finds --------------------------------------------------- */

#define MOST_PARTS 8 /* nonzero() counts in parts of two thousand million */

static __thread uint64_t selectable[MOST_PARTS];
static __thread unsigned selectable_count;

VGPU_API void vgpu_select_from(uint64_t elements)
{
    selectable[selectable_count++ % MOST_PARTS] = elements;
}

/* It reads one int for each part. */
static void answer_selected(void *to, size_t size)
{
    if (selectable_count <= MOST_PARTS && size == selectable_count * sizeof(int) && host_read_is_of("nonzero")) {
        for (unsigned i = 0; i < selectable_count; i++)
            ((int *)to)[i] = (int)((double)selectable[i] * vgpu_settings()->selected + 0.5);
        vgpu_note("estimated", "elements that nonzero() finds");
    }
    selectable_count = 0;
}

VGPU_API void vgpu_copy(void *to, const void *from, size_t size)
{
    if (!copy(to, from, size))
        return;
    if (size == 1 && host_read_checks_arguments())
        *(char *)to = 1;
    else
        zeros_were_read(size);
    if (selectable_count)
        answer_selected(to, size);
}

VGPU_API void vgpu_copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                             size_t height)
{
    int zeros = 0;

    for (size_t row = 0; row < height; row++)
        zeros |= copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    if (zeros)
        zeros_were_read(width * height);
}

VGPU_API void vgpu_fill(void *to, int value, size_t size)
{
    if (!size || size > vgpu_settings()->copy_max)
        return;
    memset(to, value, size);
    remember(to, size);
}
