/*
 * Shared mappings of files that have no name any more. Where somebody has such a file open, mapping and descriptors are of
 * one file in a fork too; where nobody has, nobody can tell it from memory, and shared.c takes it for that.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/described.h"
#include "fork/locate.h"

#define DELETED " (deleted)"

/* Whether a descriptor shows the file that is mapped: by name, and by the inode that the memory map shows too. */
static bool shows(struct capture *capture, const char *directory, int fd, const struct mapping *mapping, uint64_t *ret_flags) {
    char path[80], link[4300];
    snprintf(path, sizeof path, "%s/fd/%d", directory, fd);
    ssize_t length = readlinkat(capture->init->proc, path, link, sizeof link - 1);
    size_t name = strlen(mapping->path);
    link[length < 0 ? 0 : length] = '\0';
    if (strncmp(link, mapping->path, name) || strcmp(link + name, DELETED))
        return false;
    struct buffer info = {0};
    uint64_t inode = 0;
    snprintf(path, sizeof path, "%s/fdinfo/%d", directory, fd);
    if (procfs_read(capture->init->proc, path, &info)) {
        procfs_field((const char *)info.data, "ino", 10, &inode);
        procfs_field((const char *)info.data, "flags", 8, ret_flags);
    }
    buffer_deinit(&info);
    return inode == mapping->inode;
}

static int open_by_descriptor(struct capture *capture, const struct mapping *mapping, uint64_t *ret_flags) {
    int found = -1;
    for (size_t p = 0; found < 0 && p < capture->frozen->process_count; p++) {
        const struct frozen_process *process = &capture->frozen->processes[p];
        char directory[24], path[80];
        int *fds = NULL;
        size_t count = 0;
        snprintf(directory, sizeof directory, "%d", process->alive);
        snprintf(path, sizeof path, "%s/fd", directory);
        if (process->zombie || !procfs_numbers(capture->init->proc, path, &fds, &count))
            continue;
        for (size_t i = 0; found < 0 && i < count; i++) {
            if (!shows(capture, directory, fds[i], mapping, ret_flags) || *ret_flags & O_PATH)
                continue;
            snprintf(path, sizeof path, "%s/fd/%d", directory, fds[i]);
            found = openat(capture->init->proc, path, O_RDONLY | O_CLOEXEC);
        }
        free(fds);
    }
    return found;
}

struct bunshin_error *ghost_capture_mapping(struct capture *capture, struct frozen_process *frozen, const struct mapping *mapping,
                                            int32_t *ret) {
    bool writable = mapping->flags & MAPPING_MAY_WRITE;
    uint64_t key = ((0x6d61707065640000ull ^ mapping->inode) * 0x100000001b3ull ^ mapping->device) * 2 + writable, flags = 0;
    *ret = IMAGE_NONE;
    for (size_t i = 0; i < capture->described_count; i++)
        if (capture->described[i].fd < 0 && capture->described[i].key == key) {
            *ret = capture->described[i].description;
            return NULL;
        }
    struct image_description record = {.kind = KIND_FILE,
                                       .flags = writable ? O_RDWR : O_RDONLY,
                                       .object = IMAGE_NONE,
                                       .same_as = IMAGE_NONE,
                                       .holder = frozen->pid,
                                       .holder_fd = -1};
    struct described described = {.key = key, .pid = frozen->pid, .fd = -1, .copy = open_by_descriptor(capture, mapping, &flags)};
    struct stat info;
    if (described.copy < 0)
        return NULL;
    struct bunshin_error *error = fstat(described.copy, &info) == 0 ? NULL : bunshin_error_os("cannot look at %.200s", mapping->path);
    bool nameless = flags & O_TMPFILE & ~(uint64_t)O_DIRECTORY;
    if (nameless)
        record.flags = O_RDWR | O_TMPFILE;
    if (!error && (info.st_nlink == 0 || nameless))
        error = ghost_capture(capture, described.copy, mapping->path, &info, &record);
    else if (!error) { /* it may have another name */
        size_t number = 0;
        error = locate_want_name(capture, described.copy, &number);
        record.object = (int32_t)number;
    }
    if (!error)
        error = capture_add(capture, TABLE_DESCRIPTION, &record, sizeof record, ret);
    if (error) {
        close(described.copy);
        return error;
    }
    described.description = *ret;
    described.inode = info.st_ino;
    described.device = info.st_dev;
    return described_add(capture, &described);
}
