/* What a process met that a reader of its figures ought to know: how often, by kind and name. */
#include "core.h"

#include <string.h>

#define ROOM 64
#define LONGEST 96

struct note {
    char kind[LONGEST], name[LONGEST];
    uint64_t count;
};

static struct note notes[ROOM];

VGPU_API void vgpu_note(const char *kind, const char *name)
{
    vgpu_lock();
    for (int i = 0; i < ROOM; i++) {
        struct note *note = &notes[i];
        if (!note->count) {
            strncpy(note->kind, kind, LONGEST - 1);
            strncpy(note->name, name, LONGEST - 1);
        }
        if (!strncmp(note->kind, kind, LONGEST - 1) && !strncmp(note->name, name, LONGEST - 1)) {
            note->count++;
            break;
        }
    }
    vgpu_unlock();
}

VGPU_API uint64_t vgpu_noted(const char *kind, const char *name)
{
    uint64_t count = 0;

    vgpu_lock();
    for (int i = 0; i < ROOM; i++) {
        if (!strcmp(notes[i].kind, kind) && !strcmp(notes[i].name, name))
            count = notes[i].count;
    }
    vgpu_unlock();
    return count;
}
