/* Bytes in use, per process and device.  The table lies in the file named by
 * VGPU_SHM, so that processes compete for a device and NVML in one process
 * sees what another holds; without it, only a process and its forks share. */
#define _GNU_SOURCE
#include "report_file.h"
#include "usage_table.h"

#include <string.h>
#include <unistd.h>

static struct table *table; /* as table_lock() returned it */
static struct slot *mine;
static unsigned mine_generation;
static int leaving; /* the process is at its end: nothing is charged any more */

/* For the report, this process only. */
static uint64_t peak[VGPU_MAX_DEVICES];
static unsigned refused[VGPU_MAX_DEVICES];

static __thread int current_ordinal;

VGPU_API int vgpu_current_ordinal(void)
{
    return current_ordinal;
}

VGPU_API void vgpu_set_current_ordinal(int ordinal)
{
    current_ordinal = ordinal;
}

/* This process's slot, or NULL where there is no more room.  With the lock held. */
static struct slot *my_slot(void)
{
    if (mine && mine_generation == vgpu_fork_generation())
        return mine;

    pid_t self = getpid();
    struct slot *found = NULL;
    table_reap();
    for (int i = 0; i < VGPU_MAX_PROCESSES; i++) {
        struct slot *slot = &table->slots[i];
        if (slot->pid == self) {
            found = slot; /* of the program that this one replaced by exec() */
            break;
        }
        if (!slot->pid && !found)
            found = slot;
    }
    if (!found)
        return NULL;
    memset(found, 0, sizeof *found);
    found->started = process_start_time(self);
    found->pid = self;
    mine = found;
    mine_generation = vgpu_fork_generation();
    memset(peak, 0, sizeof peak);
    memset(refused, 0, sizeof refused);
    return mine;
}

/* ---- accounting ----------------------------------------------------------- */

static uint64_t used_by_all(int physical)
{
    uint64_t total = 0;

    for (int i = 0; i < VGPU_MAX_PROCESSES; i++) {
        if (table->slots[i].pid)
            total += table->slots[i].used[physical];
    }
    return total;
}

static int fits(int physical, uint64_t bytes)
{
    uint64_t usable = vgpu_usable(physical), used = used_by_all(physical);

    return bytes <= usable && used <= usable - bytes;
}

static void tell_taken(int physical, const struct slot *slot)
{
    struct report_device *told = report_device(physical);

    if (!told)
        return;
    told->current = slot->used[physical];
    told->peak = peak[physical];
    if (used_by_all(physical) > told->device_peak) {
        table_reap(); /* a peak is not to hold what a dead process had */
        uint64_t total = used_by_all(physical);
        if (total > told->device_peak)
            told->device_peak = total;
    }
}

static void tell_failed(int physical, uint64_t bytes)
{
    struct report_device *told = report_device(physical);
    uint64_t usable = vgpu_usable(physical), used = used_by_all(physical);

    if (!told)
        return;
    if (!told->failed++) {
        told->first_failed = bytes;
        told->free_at_first = used < usable ? usable - used : 0;
    }
    if (bytes > told->largest_failed)
        told->largest_failed = bytes;
}

static int take_locked(int physical, uint64_t bytes)
{
    uint64_t pages = vgpu_whole_pages(bytes);
    struct slot *slot = my_slot();

    if (!slot)
        return -1;
    if (!fits(physical, pages)) {
        table_reap(); /* only now: reading /proc for every allocation would be slow */
        if (!fits(physical, pages)) {
            refused[physical]++;
            tell_failed(physical, bytes);
            return -1;
        }
    }
    slot->used[physical] += pages;
    if (slot->used[physical] > peak[physical])
        peak[physical] = slot->used[physical];
    tell_taken(physical, slot);
    return 0;
}

static void give_locked(struct slot *slot, int physical, uint64_t pages)
{
    /* A forked child frees what its parent allocated: that is not its own. */
    slot->used[physical] -= pages <= slot->used[physical] ? pages : slot->used[physical];
    struct report_device *told = slot->contexts >> physical & 1 ? report_device(physical) : NULL;
    if (told)
        told->current = slot->used[physical];
}

VGPU_API int vgpu_take(int physical, uint64_t bytes)
{
    if (leaving)
        return 0;
    table = table_lock();
    int result = take_locked(physical, bytes);
    table_unlock();
    return result;
}

VGPU_API void vgpu_give(int physical, uint64_t bytes)
{
    if (leaving)
        return;
    table = table_lock();
    struct slot *slot = my_slot();
    if (slot)
        give_locked(slot, physical, vgpu_whole_pages(bytes));
    table_unlock();
}

static void tell_context(int physical, uint64_t bytes)
{
    struct report_device *told = report_device(physical);

    if (told)
        told->context = bytes;
}

VGPU_API int vgpu_enter_context(int physical)
{
    static __thread uint32_t known;
    static __thread unsigned known_generation;
    uint32_t bit = 1u << physical;
    int result = 0;

    if (leaving || (known_generation == vgpu_fork_generation() && (known & bit)))
        return 0;
    table = table_lock();
    struct slot *slot = my_slot();
    if (!slot)
        result = -1;
    else if (!(slot->contexts & bit)) {
        uint64_t context = vgpu_settings()->context;
        result = context ? take_locked(physical, context) : 0;
        if (!result)
            slot->contexts |= bit;
        tell_context(physical, result ? 0 : vgpu_whole_pages(context));
    }
    table_unlock();
    if (!result) {
        known = known_generation == vgpu_fork_generation() ? known | bit : bit;
        known_generation = vgpu_fork_generation();
    }
    return result;
}

VGPU_API int vgpu_has_context(int physical)
{
    return mine && mine_generation == vgpu_fork_generation() && (mine->contexts >> physical & 1);
}

VGPU_API uint64_t vgpu_used(int physical)
{
    table = table_lock();
    table_reap();
    uint64_t total = used_by_all(physical);
    table_unlock();
    return total;
}

VGPU_API int vgpu_users(int physical, struct vgpu_usage *out, int room)
{
    int count = 0;

    table = table_lock();
    table_reap();
    for (int i = 0; i < VGPU_MAX_PROCESSES; i++) {
        const struct slot *slot = &table->slots[i];
        if (!slot->pid || (!(slot->contexts >> physical & 1) && !slot->used[physical]))
            continue;
        if (count < room)
            out[count] = (struct vgpu_usage){ slot->pid, slot->used[physical] };
        count++;
    }
    table_unlock();
    return count;
}

/* ---- the end --------------------------------------------------------------- */

static void report(void)
{
    for (int i = 0; i < vgpu_settings()->device_count; i++) {
        if (mine->contexts >> i & 1)
            vgpu_say("pid %d, device %d: peak %.1f MiB of %.1f MiB (context %.1f MiB included), %u refused", (int)mine->pid,
                     i, (double)peak[i] / (1 << 20), (double)vgpu_usable(i) / (1 << 20),
                     (double)vgpu_settings()->context / (1 << 20), refused[i]);
    }
    vgpu_say("pid %d: %llu host reads of computed values were answered with zeros", (int)mine->pid,
             (unsigned long long)vgpu_zero_reads());
}

__attribute__((destructor)) static void leave(void)
{
    if (!mine || mine_generation != vgpu_fork_generation())
        return;
    if (vgpu_settings()->report && mine->contexts)
        report();
    /* Destructors that run later still free blocks: those are no longer charged. */
    leaving = 1;
    table = table_lock();
    memset(mine, 0, sizeof *mine);
    mine = NULL;
    table_unlock();
}

/* A process that uses no device, and only looks, may look at others than before. */
VGPU_API void vgpu_follow(void)
{
    if (!mine && settings_follow())
        table_reopen();
}
