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

/*
 * What waits in a terminal cannot be looked at, only read. So it is read and written back, with everything switched off
 * that would change it on the way; nobody runs meanwhile. Typed lines are written back in canonical mode, where a half one
 * stays half.
 */
static void settings_without_changes(const struct termios2 *settings, bool canonical, struct termios2 *ret) {
    *ret = *settings;
    ret->c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR | ISTRIP | IXON | IXOFF | IUCLC);
    ret->c_oflag &= ~(tcflag_t)OPOST;
    ret->c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ISIG | IEXTEN | ICANON);
    if (canonical)
        ret->c_lflag |= settings->c_lflag & ICANON;
    ret->c_cc[VMIN] = 1;
    ret->c_cc[VTIME] = 0;
}

static struct bunshin_error *read_waiting(int fd, struct buffer *ret) {
    int waiting = 0;
    while (ioctl(fd, FIONREAD_, &waiting) == 0 && waiting > 0) {
        size_t offset;
        TRY(buffer_extend(ret, (size_t)waiting, &offset));
        ssize_t got = read(fd, ret->data + offset, (size_t)waiting);
        ret->size = offset + (got > 0 ? (size_t)got : 0);
        if (got <= 0)
            break;
    }
    return NULL;
}

/* Puts bytes into the two directions of an empty pair, and leaves it with these settings. */
static struct bunshin_error *put_queues(int master, int slave, const void *settings, const void *typed, size_t typed_size,
                                        const void *shown, size_t shown_size) {
    struct termios2 plain;
    settings_without_changes(settings, true, &plain);
    if (ioctl(slave, TCSETS2_, &plain) != 0)
        return bunshin_error_os("cannot set up a terminal");
    bool ok = (!typed_size || write(master, typed, typed_size) == (ssize_t)typed_size) &&
              (!shown_size || write(slave, shown, shown_size) == (ssize_t)shown_size);
    if (ioctl(slave, TCSETS2_, settings) != 0 || !ok)
        return bunshin_error_os("cannot put back what waited in a terminal (%zu and %zu bytes)", typed_size, shown_size);
    return NULL;
}

static struct bunshin_error *peek_queues(struct capture *capture, int master, struct image_pty *record) {
    int slave = ioctl(master, TIOCGPTPEER_, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK), off = 0;
    if (slave < 0)
        return NULL; /* its other side cannot be opened: nothing gets through either */
    int flags = fcntl(master, F_GETFL);
    struct buffer typed = {0}, shown = {0};
    struct termios2 plain;
    settings_without_changes((const void *)record->settings, false, &plain);
    fcntl(master, F_SETFL, flags | O_NONBLOCK);
    (void)ioctl(master, TIOCPKT_, &off);
    struct bunshin_error *error = ioctl(slave, TCSETS2_, &plain) ? bunshin_error_os("cannot look into a terminal") : NULL;
    if (!error)
        error = read_waiting(slave, &typed);
    if (!error)
        error = read_waiting(master, &shown);
    struct bunshin_error *put = put_queues(master, slave, record->settings, typed.data, typed.size, shown.data, shown.size);
    error = error ? (bunshin_error_destroy(put), error) : put;
    (void)ioctl(master, TIOCPKT_, &record->packet_mode);
    fcntl(master, F_SETFL, flags);
    close(slave);
    if (!error)
        error = capture_heap(capture, typed.data, typed.size, &record->to_slave);
    if (!error)
        error = capture_heap(capture, shown.data, shown.size, &record->to_master);
    buffer_deinit(&typed);
    buffer_deinit(&shown);
    return error;
}

static struct bunshin_error *capture_master(struct capture *capture, const struct holder *holder, int index, int32_t *ret) {
    struct image_pty record = {.index = index};
    if (ioctl(holder->copy, TCGETS2_, record.settings) != 0 || ioctl(holder->copy, TIOCGWINSZ_, record.window) != 0)
        return bunshin_error_os("cannot read the settings of pty %d", index);
    (void)ioctl(holder->copy, TIOCGPTLCK_, &record.locked);
    (void)ioctl(holder->copy, TIOCGPKT_, &record.packet_mode);
    if (holder->process) /* pid 1's own shows nothing that anybody waits for */
        TRY(peek_queues(capture, holder->copy, &record));
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
    if (!error && (slave < 0 || ioctl(slave, TIOCSWINSZ_, pty->window) != 0 ||
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
        const struct image_pty *pty = IMAGE_PTY(image, p);
        TRY(open_pair(pty, &master, &slave));
        struct bunshin_error *error = put_queues(master, slave, pty->settings, IMAGE_HEAP(image, pty->to_slave), pty->to_slave.size,
                                                 IMAGE_HEAP(image, pty->to_master), pty->to_master.size);
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
