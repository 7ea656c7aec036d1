/* Address space that stands for device and pinned memory, and what lies where. */
#define _GNU_SOURCE
#include "core.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct vgpu_range *ranges; /* sorted by base */
static size_t range_count, range_room;

VGPU_API uint64_t vgpu_whole_pages(uint64_t bytes)
{
    return (bytes + VGPU_PAGE - 1) / VGPU_PAGE * VGPU_PAGE;
}

/* Aligned to a device page.  MAP_NORESERVE and no huge pages: 80 GiB of
 * "device memory" must not need 80 GiB of anything until it is touched. */
VGPU_API void *vgpu_map(size_t size, int writable)
{
    size_t wanted = vgpu_whole_pages(size);
    size_t span = wanted + VGPU_PAGE;
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_NONE;
    char *start = mmap(NULL, span, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (start == MAP_FAILED)
        return NULL;
    char *aligned = start + (vgpu_whole_pages((uintptr_t)start) - (uintptr_t)start);
    if (aligned > start)
        munmap(start, (size_t)(aligned - start));
    if (aligned + wanted < start + span)
        munmap(aligned + wanted, (size_t)(start + span - (aligned + wanted)));
    madvise(aligned, wanted, MADV_NOHUGEPAGE);
    return aligned;
}

VGPU_API void vgpu_unmap(void *address, size_t size)
{
    munmap(address, vgpu_whole_pages(size));
}

/* Index of the first range whose base is above the address. */
static size_t first_above(uintptr_t address)
{
    size_t low = 0, high = range_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].base > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int make_room(void)
{
    if (range_count < range_room)
        return 0;
    size_t room = range_room ? 2 * range_room : 256;
    struct vgpu_range *grown = realloc(ranges, room * sizeof *ranges);
    if (!grown)
        return -1;
    ranges = grown;
    range_room = room;
    return 0;
}

VGPU_API int vgpu_range_add(void *address, size_t size, enum vgpu_kind kind, int device)
{
    vgpu_lock();
    int result = make_room();
    if (!result) {
        size_t at = first_above((uintptr_t)address);
        memmove(ranges + at + 1, ranges + at, (range_count - at) * sizeof *ranges);
        ranges[at] = (struct vgpu_range){ (uintptr_t)address, size, kind, device };
        range_count++;
    }
    vgpu_unlock();
    return result;
}

/* Mapped pieces lie inside a reservation: the innermost range is the one with
 * the highest base, but a reservation goes on behind its pieces. */
static const struct vgpu_range *range_around(uintptr_t address)
{
    for (size_t i = first_above(address); i-- > 0;) {
        if (address - ranges[i].base < ranges[i].size)
            return &ranges[i];
        if (ranges[i].kind == VGPU_RESERVED)
            return NULL; /* reservations do not overlap */
    }
    return NULL;
}

VGPU_API int vgpu_range_find(const void *address, struct vgpu_range *out)
{
    vgpu_lock();
    const struct vgpu_range *found = range_around((uintptr_t)address);
    if (found)
        *out = *found;
    vgpu_unlock();
    return found != NULL;
}

VGPU_API int vgpu_range_remove(const void *address, struct vgpu_range *out)
{
    vgpu_lock();
    size_t above = first_above((uintptr_t)address);
    int found = above && ranges[above - 1].base == (uintptr_t)address;
    if (found) {
        *out = ranges[above - 1];
        memmove(ranges + above - 1, ranges + above, (range_count - above) * sizeof *ranges);
        range_count--;
    }
    vgpu_unlock();
    return found;
}
