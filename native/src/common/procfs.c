#define _GNU_SOURCE
#include "common/procfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

bool procfs_read(int proc, const char *path, struct buffer *ret) {
    ret->size = 0;
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    struct bunshin_error *error = buffer_read_all(ret, fd, path);
    close(fd);
    bunshin_error_destroy(error);
    return !error;
}

bool procfs_stat(int proc, const char *directory, struct process_stat *ret) {
    char path[64], text[2048];
    snprintf(path, sizeof path, "%s/stat", directory);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    char *open = strchr(text, '('), *end = strrchr(text, ')');
    if (!open || !end)
        return false;
    *ret = (struct process_stat){.pid = atoi(text)};
    size_t length = (size_t)(end - open - 1);
    if (length > sizeof ret->comm - 1)
        length = sizeof ret->comm - 1;
    memcpy(ret->comm, open + 1, length);
    int64_t field[53] = {0};
    char *next = end + 2;
    ret->state = *next;
    next += 2;
    for (int i = 4; i < 53 && *next; i++) {
        char *stop;
        errno = 0;
        field[i] = *next == '-' ? strtoll(next, &stop, 10) : (int64_t)strtoull(next, &stop, 10);
        if (stop == next)
            break;
        next = stop + (*stop == ' ');
    }
    ret->ppid = (pid_t)field[4];
    ret->pgrp = (pid_t)field[5];
    ret->session = (pid_t)field[6];
    ret->tty = (int)field[7];
    ret->tty_pgrp = (int)field[8];
    ret->flags = (uint64_t)field[9];
    ret->ticks = (uint64_t)(field[14] + field[15]);
    ret->nice = field[19];
    ret->threads = field[20];
    ret->start_time = (uint64_t)field[22];
    ret->start_code = (uint64_t)field[26];
    ret->end_code = (uint64_t)field[27];
    ret->start_stack = (uint64_t)field[28];
    ret->exit_signal = (int)field[38];
    ret->rt_priority = (uint32_t)field[40];
    ret->policy = (uint32_t)field[41];
    ret->start_data = (uint64_t)field[45];
    ret->end_data = (uint64_t)field[46];
    ret->start_brk = (uint64_t)field[47];
    ret->arg_start = (uint64_t)field[48];
    ret->arg_end = (uint64_t)field[49];
    ret->env_start = (uint64_t)field[50];
    ret->env_end = (uint64_t)field[51];
    ret->exit_code = (int)field[52];
    return true;
}

bool procfs_numbers(int proc, const char *path, int **ret, size_t *ret_count) {
    int fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    struct buffer numbers = {0};
    bool ok = true;
    char entries[16384];
    for (;;) {
        long got = syscall(SYS_getdents64, fd, entries, sizeof entries);
        if (got <= 0) {
            ok = got == 0;
            break;
        }
        for (long at = 0; at < got;) {
            struct dirent64 *entry = (struct dirent64 *)(entries + at);
            at += entry->d_reclen;
            if (!isdigit((unsigned char)entry->d_name[0]))
                continue;
            int number = atoi(entry->d_name);
            struct bunshin_error *error = buffer_append(&numbers, &number, sizeof number);
            if (error) {
                bunshin_error_destroy(error);
                ok = false;
                break;
            }
        }
    }
    close(fd);
    if (!ok) {
        buffer_deinit(&numbers);
        return false;
    }
    *ret = (int *)(void *)numbers.data;
    *ret_count = numbers.size / sizeof(int);
    return true;
}

bool procfs_field(const char *text, const char *name, int base, uint64_t *ret) {
    size_t length = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (!strncmp(line, name, length) && line[length] == ':') {
            const char *value = line + length + 1;
            while (*value == ' ' || *value == '\t')
                value++;
            *ret = strtoull(value, NULL, base);
            return true;
        }
        if (!*line)
            break;
    }
    return false;
}
