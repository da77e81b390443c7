/* The memory map of a process: /proc/PID/smaps as records. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fork/capture.h"

void mappings_deinit(struct mappings *mappings) {
    buffer_deinit(&mappings->text);
    free(mappings->list);
    *mappings = (struct mappings){0};
}

/* A page store is private to each process, and bears the name of what is mapped from it, if that has one. */
static bool is_store(const struct capture *capture, struct mapping *mapping) {
    if (mapping->shared || mapping->device != capture->memory_device ||
        (strncmp(mapping->path, "/memfd:bunshin-pages", 20) && strncmp(mapping->path, NAMED_OBJECT, strlen(NAMED_OBJECT))))
        return false;
    for (mapping->store = capture->store_count - 1; mapping->store >= 0; mapping->store--)
        if (capture->stores[mapping->store].inode == mapping->inode)
            return true;
    return false;
}

static char classify(const struct capture *capture, struct mapping *mapping) {
    const char *path = mapping->path;
    if (is_store(capture, mapping))
        return 'p';
    if (*path == '[') {
        if (!strcmp(path, "[stack]"))
            return 's';
        if (!strcmp(path, "[vdso]"))
            return 'v';
        if (!strcmp(path, "[heap]") || !strncmp(path, "[anon:", 6))
            return 'a';
        return !strncmp(path, "[anon_shmem", 11) ? 'f' : 'x';
    }
    if (!mapping->inode && strncmp(path, "/SYSV", 5)) /* a System V segment's inode is its id */
        return *path ? 'x' : 'a';
    return 'f';
}

static unsigned read_flags(const char *text) {
    static const struct {
        const char *name;
        unsigned flag;
    } flags[] = {{" gd", MAPPING_GROWS},      {" lo", MAPPING_LOCKED},           {" lf", MAPPING_LOCKED_ON_FAULT},
                 {" dc", MAPPING_NOT_FOR_CHILDREN}, {" wf", MAPPING_WIPED_IN_CHILDREN}, {" dd", MAPPING_NOT_DUMPED},
                 {" hg", MAPPING_HUGE},       {" nh", MAPPING_NOT_HUGE},         {" mg", MAPPING_MERGEABLE},
                 {" mw", MAPPING_MAY_WRITE},  {" ht", MAPPING_HUGE_PAGES},
                 {" sl", MAPPING_SEALED}};
    unsigned found = 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strstr(text, flags[i].name))
            found |= flags[i].flag;
    return found;
}

static void read_mapping(struct capture *capture, char *line, struct mapping *mapping) {
    char *at = line;
    mapping->start = strtoull(at, &at, 16);
    mapping->end = strtoull(at + 1, &at, 16);
    at++;
    mapping->protection = (at[0] == 'r' ? PROT_READ : 0) | (at[1] == 'w' ? PROT_WRITE : 0) | (at[2] == 'x' ? PROT_EXEC : 0);
    mapping->shared = at[3] == 's';
    mapping->offset = strtoull(at + 5, &at, 16);
    unsigned major = (unsigned)strtoul(at + 1, &at, 16);
    mapping->device = major << 20 | (unsigned)strtoul(at + 1, &at, 16);
    mapping->inode = strtoull(at + 1, &at, 10);
    while (*at == ' ')
        at++;
    size_t length = strlen(at);
    if (length > 10 && !strcmp(at + length - 10, " (deleted)")) {
        mapping->deleted = true;
        at[length - 10] = '\0';
    }
    mapping->path = at;
    mapping->kind = classify(capture, mapping);
}

/* A mapping that grows cannot be one of a file, and one that children find empty must be anonymous. */
static void apply_flags(struct mapping *mapping, const char *text) {
    mapping->flags = read_flags(text);
    if (mapping->kind == 'a' && mapping->flags & MAPPING_GROWS)
        mapping->kind = 's';
    else if (mapping->kind == 'a' && mapping->flags & MAPPING_WIPED_IN_CHILDREN)
        mapping->kind = 'w';
}

struct bunshin_error *mappings_read(struct capture *capture, pid_t pid, struct mappings *ret) {
    char path[32];
    *ret = (struct mappings){0};
    snprintf(path, sizeof path, "%d/smaps", pid);
    if (!procfs_read(capture->init->proc, path, &ret->text))
        return bunshin_error_new(BUNSHIN_ERROR_FORK, ESRCH, "cannot read the memory map of pid %d", pid);
    size_t lines = 0;
    for (const uint8_t *at = ret->text.data; at && (at = (const uint8_t *)strchr((const char *)at, '\n')); at++)
        lines++;
    ret->list = calloc(lines / 8 + 64, sizeof *ret->list); /* a mapping takes two dozen lines */
    if (!ret->list) {
        mappings_deinit(ret);
        return bunshin_error_no_memory();
    }
    for (char *line = (char *)ret->text.data, *end; line && *line; line = end + 1) {
        if (!(end = strchr(line, '\n')))
            break;
        *end = '\0';
        bool header = (*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f');
        if (header && ret->count < lines / 8 + 64) {
            struct mapping *mapping = &ret->list[ret->count++];
            read_mapping(capture, line, mapping);
            if (mapping->kind == 'v')
                ret->vdso = mapping->start;
            if ((mapping->kind == 'v' || !strncmp(mapping->path, "[vvar", 5)) && !ret->vdso_base)
                ret->vdso_base = mapping->start;
        } else if (ret->count && !strncmp(line, "Swap:", 5))
            ret->list[ret->count - 1].swapped = strtoull(line + 5, NULL, 10) > 0;
        else if (ret->count && !strncmp(line, "ProtectionKey:", 14))
            ret->list[ret->count - 1].key = atoi(line + 14);
        else if (ret->count && !strncmp(line, "VmFlags:", 8))
            apply_flags(&ret->list[ret->count - 1], line + 8);
    }
    return NULL;
}
