/*
 * System V shared memory. Segments are listed by the kernel, attached or not; their content is read by attaching them for
 * a moment. Where and how processes have them attached is in their memory maps, whose inode numbers are the ids.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fork/content.h"
#include "fork/sysv.h"

#define MINCORE_PAGES 65536u

static uint64_t whole_pages(uint64_t size) { return (size + ARCH_PAGE - 1) & ~(ARCH_PAGE - 1); }

/* ---- who was last ---- */

static int touch(const void *argument) {
    void *memory = shmat(*(const int32_t *)argument, NULL, SHM_RDONLY);
    return memory == (void *)-1 ? errno : shmdt(memory) ? errno : 0;
}

static struct bunshin_error *touch_from(struct tracee *leader, uint64_t vdso_code, int id) {
    uint64_t attach[6] = {(uint64_t)id, 0, SHM_RDONLY}, detach[6] = {0};
    int64_t at, result;
    TRY(tracee_syscall(leader, vdso_code, SYS_shmat, attach, &at));
    if (at < 0 && at > -4096)
        return NULL; /* it may no more */
    detach[0] = (uint64_t)at;
    return tracee_syscall(leader, vdso_code, SYS_shmdt, detach, &result);
}

static bool is_last(const struct image_segment *segment) {
    struct shmid_ds now;
    return !segment->last || shmctl(segment->id, IPC_STAT, &now) != 0 || now.shm_lpid == segment->last;
}

static uint64_t vdso_of(int proc, pid_t pid) {
    char path[32];
    struct buffer auxv = {0};
    uint64_t found = 0;
    snprintf(path, sizeof path, "%d/auxv", pid);
    if (procfs_read(proc, path, &auxv))
        for (size_t i = 0; i + 1 < auxv.size / 8; i += 2)
            if (((const uint64_t *)(const void *)auxv.data)[i] == AT_SYSINFO_EHDR)
                found = ((const uint64_t *)(const void *)auxv.data)[i + 1];
    buffer_deinit(&auxv);
    return found;
}

static void give_back(struct frozen *frozen, int proc, const struct image_segment *segment) {
    struct frozen_process *process = freeze_find(frozen, segment->last);
    if (!process) {
        (void)sysv_act(&(struct sysv_actor){.pid = segment->last}, touch, &segment->id);
        return;
    }
    struct tracee *leader = process->zombie ? NULL : &frozen->threads[process->first_thread];
    uint64_t vdso = vdso_of(proc, process->alive);
    if (!leader || leader->state != TRACEE_STOPPED || !vdso)
        return;
    leader->changed = true;
    struct bunshin_error *error = tracee_set_mask(leader, ~0ull);
    if (!error)
        error = touch_from(leader, vdso, segment->id);
    bunshin_error_destroy(error);
}

static struct image_segment *looked_at; /* by the last seal */
static size_t looked_at_count;

static struct bunshin_error *look_at(const struct image_segment *segment) {
    struct image_segment *grown = realloc(looked_at, (looked_at_count + 1) * sizeof *grown);
    if (!grown)
        return bunshin_error_no_memory();
    looked_at = grown;
    looked_at[looked_at_count++] = *segment;
    return NULL;
}

void sysv_release(struct frozen *frozen, int proc) {
    for (size_t i = 0; i < looked_at_count; i++)
        if (!is_last(&looked_at[i]))
            give_back(frozen, proc, &looked_at[i]);
    looked_at_count = 0;
}

/* ---- capture: segments ---- */

/* A segment of huge pages shows nowhere but in the map of who has it attached. */
static bool is_huge(struct capture *capture, const void *memory) {
    char start[32];
    struct buffer text = {0};
    bool huge = false;
    snprintf(start, sizeof start, "%lx-", (unsigned long)(uintptr_t)memory);
    if (procfs_read(capture->init->proc, "self/smaps", &text)) {
        const char *at = strstr((const char *)text.data, start), *flags = at ? strstr(at, "VmFlags:") : NULL;
        const char *huge_flag = flags ? strstr(flags, " ht") : NULL;
        huge = huge_flag && huge_flag < strchr(flags, '\n');
    }
    buffer_deinit(&text);
    return huge;
}

static bool has_huge_pages(struct capture *capture) {
    struct buffer text = {0};
    uint64_t total = 0;
    if (procfs_read(capture->init->proc, "meminfo", &text))
        procfs_field((const char *)text.data, "HugePages_Total", 10, &total);
    buffer_deinit(&text);
    return total > 0;
}

/* Only pages that exist: reading another would make it exist. */
static struct bunshin_error *take_pages(struct capture *capture, const struct image_segment *segment, const uint8_t *memory, uint64_t resident,
                                        bool swapped, struct buffer *runs) {
    static unsigned char there[MINCORE_PAGES];
    const struct known *known = content_known(CONTENT_SEGMENT, (uint64_t)segment->id);
    uint64_t pages = whole_pages(segment->size) / ARCH_PAGE;
    for (uint64_t at = 0; at < pages && (resident || swapped); at += MINCORE_PAGES) {
        uint64_t part = pages - at < MINCORE_PAGES ? pages - at : MINCORE_PAGES;
        if (swapped)
            memset(there, 1, part); /* mincore does not tell what was swapped out from what never was */
        else if (mincore((void *)(memory + at * ARCH_PAGE), part * ARCH_PAGE, there) != 0)
            return bunshin_error_os("cannot look at System V segment %d", segment->id);
        for (uint64_t page = 0, end; page < part; page = end + 1) {
            for (end = page; end < part && there[end] & 1; end++)
                resident -= resident > 0;
            if (end > page)
                TRY(content_take(capture, known, (at + page) * ARCH_PAGE, memory + (at + page) * ARCH_PAGE, (end - page) * ARCH_PAGE, runs));
        }
    }
    return NULL;
}

static struct bunshin_error *refuse(struct capture *capture, const struct image_segment *segment, const char *what) {
    const struct frozen_process *process = freeze_find(capture->frozen, segment->creator);
    if (process)
        return bunshin_error_unsupported(process->pid, process->stat.comm, -1, "a System V segment (id %d) %s", segment->id, what);
    return bunshin_error_new(BUNSHIN_ERROR_UNSUPPORTED, 0, "cannot fork: the workspace holds a System V segment (id %d) %s", segment->id, what);
}

struct bunshin_error *sysv_capture_segment(struct capture *capture, const char *line) {
    struct image_segment segment = {0};
    unsigned long long size, resident, swapped;
    if (sscanf(line, "%d %d %o %llu %d %d %*u %u %u %u %u %*u %*u %*u %llu %llu", &segment.key, &segment.id, &segment.mode, &size,
               &segment.creator, &segment.last, &segment.uid, &segment.gid, &segment.creator_uid, &segment.creator_gid, &resident,
               &swapped) != 12)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, EBADMSG, "cannot read the list of System V segments");
    segment.size = size;
    bool may_be_huge = size % (2u << 20) == 0 && has_huge_pages(capture);
    struct buffer runs = {0};
    struct bunshin_error *error = NULL;
    if (resident || swapped || may_be_huge) {
        TRY(look_at(&segment));
        const uint8_t *memory = shmat(segment.id, NULL, SHM_RDONLY);
        if (memory == (void *)-1)
            return bunshin_error_os("cannot read System V segment %d", segment.id);
        if (may_be_huge && is_huge(capture, memory))
            error = refuse(capture, &segment, "of huge pages");
        else
            error = take_pages(capture, &segment, memory, resident / ARCH_PAGE, swapped > 0, &runs);
        shmdt(memory);
    }
    if (!error)
        error = content_add(capture, &runs, &segment.first_run, &segment.run_count);
    buffer_deinit(&runs);
    return error ? error : capture_add(capture, TABLE_SEGMENT, &segment, sizeof segment, NULL);
}

/* ---- capture: attachments ---- */

bool sysv_is_segment(const struct capture *capture, const struct mapping *mapping) {
    return !strncmp(mapping->path, "/SYSV", 5) && mapping->deleted && mapping->device == capture->memory_device;
}

static uint64_t base_of(const struct mapping *mapping) { return mapping->start - mapping->offset; }

static bool is_part(const struct capture *capture, const struct mapping *mapping, const struct mapping *other) {
    return mapping->inode == other->inode && base_of(mapping) == base_of(other) && sysv_is_segment(capture, other);
}

static struct bunshin_error *add_op(struct capture *capture, enum op_kind kind, uint64_t address, uint64_t length, uint64_t offset, int source,
                                    int protection, int flags) {
    struct image_op op = {address, length, offset, kind, source, protection, flags};
    return capture_add(capture, TABLE_OP, &op, sizeof op, NULL);
}

/* An address range that is free in the process, far from where find_hole() looks. */
static uint64_t find_scratch(const struct mappings *mappings, uint64_t size) {
    for (size_t i = mappings->count; i-- > 1;) {
        uint64_t start = mappings->list[i - 1].end, end = mappings->list[i].start;
        if (end < ARCH_TASK_END && end - start > size + (4ull << 30))
            return end - size - (1ull << 30);
    }
    return 0;
}

/*
 * An attachment is mapped as a whole, and what is left of it moved to where it is now: parts keep belonging together, so
 * that shmdt() takes them all.
 */
static struct bunshin_error *move_parts(struct capture *capture, const struct mappings *mappings, size_t first, uint64_t scratch,
                                        uint64_t size) {
    const struct mapping *mapping = &mappings->list[first];
    for (size_t i = first; i < mappings->count; i++) {
        const struct mapping *part = &mappings->list[i];
        if (!is_part(capture, mapping, part))
            continue;
        uint64_t length = part->end - part->start, there = part->offset < size ? size - part->offset : 0;
        uint64_t moved = length < there ? length : there;
        if (moved)
            TRY(add_op(capture, OP_MOVE, part->start, moved, scratch + part->offset, 0, 0, 0));
        if (moved < length)
            TRY(add_op(capture, OP_GROW, part->start, length, moved, 0, 0, 0));
    }
    return add_op(capture, OP_UNMAP, scratch, size, 0, 0, 0, 0);
}

struct bunshin_error *sysv_capture_mapping(struct capture *capture, struct frozen_process *frozen, const struct mappings *mappings,
                                           const struct mapping *mapping) {
    int32_t index = 0, count = CAPTURE_COUNT(capture, TABLE_SEGMENT, struct image_segment);
    struct image_segment *segments = CAPTURE_AT(capture, TABLE_SEGMENT, struct image_segment, 0);
    while (index < count && segments[index].id != (int)mapping->inode)
        index++;
    size_t first = (size_t)(mapping - mappings->list), parts = 0, last = first;
    for (size_t i = 0; i < first; i++)
        if (is_part(capture, mapping, &mappings->list[i]))
            return NULL; /* it came with its first part */
    for (size_t i = first; i < mappings->count; i++)
        if (is_part(capture, mapping, &mappings->list[i]))
            parts++, last = i;
    if (index == count)
        return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "a System V segment that is in no list, %.60s", mapping->path);
    struct image_segment *segment = &segments[index];
    if (segment->mode & SHM_DEST && !segment->key)
        segment->name_key = (int)strtoul(mapping->path + 5, NULL, 16);
    uint64_t size = whole_pages(segment->size);
    int protection = mapping->flags & MAPPING_MAY_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
    int flags = mapping->flags & MAPPING_MAY_WRITE ? 0 : SHM_RDONLY;
    bool whole = mapping->offset == 0 && mappings->list[last].end == mapping->start + size;
    for (size_t i = first; whole && i < last; i++)
        whole = mappings->list[i].end == mappings->list[i + 1].start && is_part(capture, mapping, &mappings->list[i + 1]);
    if (whole)
        TRY(add_op(capture, OP_ATTACH, mapping->start, size, 0, index, 0, flags));
    else {
        uint64_t scratch = find_scratch(mappings, size);
        if (!scratch)
            return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "a part of a System V segment, and no room for all of it");
        TRY(add_op(capture, OP_ATTACH, scratch, size, 0, index, 0, flags));
        TRY(move_parts(capture, mappings, first, scratch, size));
    }
    for (size_t i = first; i <= last; i++) {
        const struct mapping *part = &mappings->list[i];
        if (is_part(capture, mapping, part) && part->protection != protection)
            TRY(add_op(capture, OP_PROTECT, part->start, part->end - part->start, 0, 0, part->protection, 0));
    }
    return NULL;
}

/* ---- rebuild ---- */

static int make_segment(const void *record) {
    const struct image_segment *segment = record;
    int flags = IPC_CREAT | IPC_EXCL | SHM_NORESERVE | (int)(segment->mode & 0777);
    int id = segment->name_key ? shmget(segment->name_key, segment->size, flags) : -1;
    return id >= 0 ? id : shmget(segment->key, segment->size, flags);
}

struct bunshin_error *sysv_rebuild_segment(struct rebuild *rebuild, const struct image_segment *record) {
    struct image_segment segment = *record;
    for (size_t i = 0; i < rebuild->image->table[TABLE_SEGMENT].count; i++)
        if (IMAGE_SEGMENT(rebuild->image, i)->key == segment.name_key)
            segment.name_key = 0; /* another one's now */
    struct sysv_creation creation = {
        .kind = SYSV_SHM,
        .id = segment.id,
        .actor = {segment.creator, segment.creator_uid, segment.creator_gid},
        .make = make_segment,
        .record = &segment,
    };
    TRY(sysv_create(rebuild, &creation));
    if (segment.run_count) {
        void *memory = shmat(segment.id, NULL, 0);
        if (memory == (void *)-1)
            return bunshin_error_os("cannot fill System V segment %d", segment.id);
        struct bunshin_error *error =
            content_fill_memory(rebuild, segment.first_run, segment.run_count, memory, CONTENT_SEGMENT, (uint64_t)segment.id);
        shmdt(memory);
        TRY(error);
    }
    struct shmid_ds state = {.shm_perm = {.uid = segment.uid, .gid = segment.gid, .mode = segment.mode & 0777}};
    bool changed = segment.uid != segment.creator_uid || segment.gid != segment.creator_gid;
    if (changed && shmctl(segment.id, IPC_SET, &state) != 0)
        return bunshin_error_os("cannot set the owner of System V segment %d", segment.id);
    if (segment.mode & SHM_LOCKED && shmctl(segment.id, SHM_LOCK, NULL) != 0)
        return bunshin_error_os("cannot lock System V segment %d", segment.id);
    return NULL;
}

/* All who had it attached have it again. */
struct bunshin_error *sysv_finish_segment(struct rebuild *rebuild, struct tracee *tracees, const struct image_segment *segment) {
    if (!is_last(segment)) {
        const struct image_process *process = sysv_find_process(rebuild, segment->last);
        if (!process)
            (void)sysv_act(&(struct sysv_actor){.pid = segment->last}, touch, &segment->id); /* else we are named: no more than that */
        else if (process->state != PROCESS_ZOMBIE && process->vdso && tracees[process->first_thread].state == TRACEE_STOPPED) {
            struct tracee *leader = &tracees[process->first_thread];
            TRY(touch_from(leader, process->vdso_code, segment->id));
            TRY(tracee_write_registers(leader, &leader->registers));
        }
    }
    if (segment->mode & SHM_DEST && shmctl(segment->id, IPC_RMID, NULL) != 0)
        return bunshin_error_os("cannot mark System V segment %d for removal", segment->id);
    return NULL;
}
