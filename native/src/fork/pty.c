/* Pseudo-terminals: pairs with their index, settings, size and waiting output; and who is controlled by them. */
#define _GNU_SOURCE
#include <asm/termbits.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/described.h"
#include "fork/rebuild.h"

/* <sys/ioctl.h> and <asm/termbits.h> do not go together. */
int ioctl(int fd, unsigned long request, ...);
#define TIOCGPTN_ 0x80045430ul
#define TIOCSPTLCK_ 0x40045431ul
#define TIOCGPTLCK_ 0x80045439ul
#define TIOCGPKT_ 0x80045438ul
#define TIOCPKT_ 0x5420ul
#define TIOCGPTPEER_ 0x5441ul
#define TIOCGWINSZ_ 0x5413ul
#define TIOCSWINSZ_ 0x5414ul
#define TIOCSCTTY_ 0x540Eul
#define TIOCSPGRP_ 0x5410ul
#define FIONREAD_ 0x541Bul
#define TCGETS2_ 0x802C542Aul
#define TCSETS2_ 0x402C542Bul

#define TTY_SLAVE_MAJOR 136

/* ---- capture ---- */

static int32_t find_pty(struct capture *capture, int index) {
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_PTY, struct image_pty); i++)
        if (CAPTURE_AT(capture, TABLE_PTY, struct image_pty, i)->index == index)
            return i;
    return IMAGE_NONE;
}

static struct bunshin_error *capture_master(struct capture *capture, const struct holder *holder, int index, int32_t *ret) {
    struct image_pty record = {.index = index};
    int waiting = 0;
    if (ioctl(holder->copy, TCGETS2_, record.settings) != 0 || ioctl(holder->copy, TIOCGWINSZ_, record.window) != 0)
        return bunshin_error_os("cannot read the settings of pty %d", index);
    (void)ioctl(holder->copy, TIOCGPTLCK_, &record.locked);
    (void)ioctl(holder->copy, TIOCGPKT_, &record.packet_mode);
    /* Waiting output cannot be looked at without taking it. pid 1's own terminal shows nothing anybody waits for. */
    if (holder->process && ioctl(holder->copy, FIONREAD_, &waiting) == 0 && waiting > 0)
        return capture_refuse(holder, "a pty with %d bytes of output not read yet", waiting);
    return capture_add(capture, TABLE_PTY, &record, sizeof record, ret);
}

struct bunshin_error *pty_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    int index;
    if (ioctl(holder->copy, TIOCGPTN_, &index) == 0) {
        ret->kind = KIND_PTY_MASTER;
        ret->object = find_pty(capture, index);
        if (ret->object == IMAGE_NONE)
            TRY(capture_master(capture, holder, index, &ret->object));
        return NULL;
    }
    if (!strcmp(holder->link, "/dev/tty")) {
        if (!holder->process || (holder->process->stat.tty >> 8 & 0xfff) < TTY_SLAVE_MAJOR)
            return capture_refuse(holder, "a terminal that is not a pty of this workspace");
        index = holder->process->stat.tty & 0xff;
    } else if (sscanf(holder->link, "/dev/pts/%d", &index) != 1)
        return capture_refuse(holder, "the terminal %.60s", holder->link);
    int waiting = 0;
    if (ioctl(holder->copy, FIONREAD_, &waiting) == 0 && waiting > 0)
        return capture_refuse(holder, "a pty with %d bytes of typed input not read yet", waiting);
    ret->kind = KIND_PTY_SLAVE;
    ret->object = index; /* the index for now: its master may be seen later */
    return NULL;
}

struct bunshin_error *pty_connect(struct capture *capture) {
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description); i++) {
        struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i);
        if (record->kind != KIND_PTY_SLAVE)
            continue;
        int32_t pty = find_pty(capture, record->object);
        if (pty == IMAGE_NONE)
            return bunshin_error_unsupported(record->holder, "", record->holder_fd, "a terminal whose other side is closed, /dev/pts/%d",
                                             record->object);
        record->object = pty;
    }
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_PROCESS, struct image_process); i++) {
        struct image_process *process = CAPTURE_AT(capture, TABLE_PROCESS, struct image_process, i);
        if (process->terminal == IMAGE_NONE)
            continue;
        int device = process->terminal;
        process->terminal = find_pty(capture, (device & 0xff) | (device >> 12 & 0xfff00));
        if (process->terminal == IMAGE_NONE)
            return bunshin_error_unsupported(process->pid, process->name, -1, "a controlling terminal that is not a pty of this workspace");
    }
    return NULL;
}

/* ---- rebuild ---- */

/* The kernel gives the lowest free index: pairs are opened until the wanted one comes, and the others closed again. */
static struct bunshin_error *open_pair(const struct image_pty *pty, int *ret_master, int *ret_slave) {
    int waste[256], count = 0, master = -1;
    struct bunshin_error *error = NULL;
    while (!error) {
        int index;
        master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (master < 0 || ioctl(master, TIOCGPTN_, &index) != 0)
            error = bunshin_error_os("cannot open pty %d", pty->index);
        else if (index == pty->index)
            break;
        else if (index > pty->index || count == 256)
            error = bunshin_error_new(BUNSHIN_ERROR_FORK, EBUSY, "cannot open pty %d: the kernel gave %d", pty->index, index);
        else
            waste[count++] = master;
    }
    for (int i = 0; i < count; i++)
        close(waste[i]);
    int unlock = 0;
    if (!error && ioctl(master, TIOCSPTLCK_, &unlock) != 0)
        error = bunshin_error_os("cannot unlock pty %d", pty->index);
    int slave = error ? -1 : ioctl(master, TIOCGPTPEER_, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (!error && (slave < 0 || ioctl(slave, TCSETS2_, pty->settings) != 0 || ioctl(slave, TIOCSWINSZ_, pty->window) != 0 ||
                   ioctl(master, TIOCPKT_, &pty->packet_mode) != 0))
        error = bunshin_error_os("cannot set up pty %d", pty->index);
    if (error) {
        if (master >= 0)
            close(master);
        if (slave >= 0)
            close(slave);
        return error;
    }
    *ret_master = master;
    *ret_slave = slave;
    return NULL;
}

/*
 * A second opening of one side. The master has only one description in all but odd programs; descriptors of both share it
 * by being the same description, so each side's first description takes the pair's own descriptor.
 */
struct bunshin_error *pty_rebuild_all(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    for (int32_t p = 0; p < (int32_t)image->table[TABLE_PTY].count; p++) {
        int master, slave;
        TRY(open_pair(IMAGE_PTY(image, p), &master, &slave));
        struct bunshin_error *error = NULL;
        for (int32_t i = 0; !error && i < (int32_t)image->table[TABLE_DESCRIPTION].count; i++) {
            const struct image_description *record = IMAGE_DESCRIPTION(image, i);
            if (record->object != p || (record->kind != KIND_PTY_MASTER && record->kind != KIND_PTY_SLAVE))
                continue;
            int fd = -1;
            if (record->kind == KIND_PTY_MASTER) {
                fd = master;
                master = -1;
                if (fd < 0)
                    error = bunshin_error_new(BUNSHIN_ERROR_FORK, EBUSY, "pty %d has two masters", IMAGE_PTY(image, p)->index);
            } else {
                char path[32];
                snprintf(path, sizeof path, "/dev/pts/%d", IMAGE_PTY(image, p)->index);
                fd = open(path, (record->flags & O_ACCMODE) | O_NOCTTY | O_CLOEXEC);
                if (fd < 0)
                    error = bunshin_error_os("cannot open %s", path);
            }
            if (!error)
                error = rebuild_place(rebuild, i, fd);
        }
        if (master >= 0)
            close(master);
        /* Held open to the end: a side with no holder for a moment would hang the other one up. */
        (void)slave;
        TRY(error);
    }
    return NULL;
}

/* In a session leader's stub: its terminal controls it again. */
int pty_take_control(struct rebuild *rebuild, const struct image_process *process) {
    if (process->terminal == IMAGE_NONE || process->session != process->pid)
        return 0;
    char path[32];
    snprintf(path, sizeof path, "/dev/pts/%d", IMAGE_PTY(rebuild->image, process->terminal)->index);
    int fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int failed = ioctl(fd, TIOCSCTTY_, 0) ? errno : 0;
    close(fd);
    return failed;
}

/* In any stub of the session, once its groups are there. */
int pty_set_foreground(struct rebuild *rebuild, const struct image_process *process) {
    if (process->terminal == IMAGE_NONE || process->session != process->pid || process->terminal_group <= 0)
        return 0;
    char path[32];
    snprintf(path, sizeof path, "/dev/pts/%d", IMAGE_PTY(rebuild->image, process->terminal)->index);
    int fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int group = process->terminal_group;
    int failed = ioctl(fd, TIOCSPGRP_, &group) ? errno : 0;
    close(fd);
    return failed == ESRCH ? 0 : failed; /* a group that is gone: nothing is in the foreground, as before */
}
