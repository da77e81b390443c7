/*
 * What waits in a terminal, in both directions, and whether its output is held up. None of it can be looked at, only taken
 * out: so it is taken out and put back, with everything switched off that would change it on the way; nobody runs
 * meanwhile. Typed lines are taken and put in canonical mode, where ends of input stay ends and half a line stays half.
 */
#define _GNU_SOURCE
#include "fork/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_US 500000
#define DISABLED 0 /* a control character that is not set */

static void settings_without_changes(const struct termios2 *settings, struct termios2 *ret) {
    *ret = *settings;
    ret->c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR | ISTRIP | IXON | IXOFF | IUCLC | PARMRK | IMAXBEL);
    ret->c_oflag &= ~(tcflag_t)OPOST;
    ret->c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ECHOCTL | ECHOPRT | ISIG | IEXTEN);
    static const int acting[] = {VERASE, VKILL, VWERASE, VREPRINT, VLNEXT, VSTART, VSTOP};
    for (size_t i = 0; i < sizeof acting / sizeof *acting; i++)
        ret->c_cc[acting[i]] = DISABLED;
    ret->c_cc[VMIN] = 1;
    ret->c_cc[VTIME] = 0;
}

static bool is_canonical(const struct termios2 *settings) { return settings->c_lflag & ICANON && !(settings->c_lflag & EXTPROC); }

static bool is_ready(int fd, short events) {
    struct pollfd poll_one = {fd, events, 0};
    return poll(&poll_one, 1, 0) > 0 && poll_one.revents & events;
}

/* One read, appended; *ret_got is what read() answers. */
static struct bunshin_error *read_some(int fd, struct buffer *buffer, ssize_t *ret_got) {
    char bytes[4096];
    *ret_got = read(fd, bytes, sizeof bytes);
    return *ret_got > 0 ? buffer_append(buffer, bytes, (size_t)*ret_got) : NULL;
}

static struct bunshin_error *read_waiting(int fd, struct buffer *ret) {
    int waiting = 0;
    ssize_t got = 1;
    while (got > 0 && ioctl(fd, FIONREAD, &waiting) == 0 && waiting > 0)
        TRY(read_some(fd, ret, &got));
    return NULL;
}

/* Whole lines, as a program would read them: what does not end like a line ended by an end of input. */
static struct bunshin_error *read_lines(int slave, const struct termios2 *settings, struct buffer *typed, struct buffer *ends) {
    while (is_ready(slave, POLLIN)) {
        ssize_t got;
        TRY(read_some(slave, typed, &got));
        if (got < 0)
            break;
        uint8_t last = got ? typed->data[typed->size - 1] : 0;
        bool line = got && (last == '\n' || (last && (last == settings->c_cc[VEOL] || last == settings->c_cc[VEOL2])));
        uint32_t end = (uint32_t)typed->size;
        if (!line)
            TRY(buffer_append(ends, &end, sizeof end));
    }
    return NULL;
}

struct bunshin_error *pty_take_queues(int master, int slave, const void *settings_bytes, struct pty_queues *ret) {
    const struct termios2 *settings = settings_bytes;
    struct termios2 plain;
    settings_without_changes(settings, &plain);
    plain.c_lflag &= ~(tcflag_t)ICANON;
    TRY(read_waiting(master, &ret->shown));
    bool held = !is_ready(slave, POLLOUT); /* there is room now */
    if (is_canonical(settings))
        TRY(read_lines(slave, settings, &ret->typed, &ret->ends));
    if (ioctl(slave, TCSETS2, &plain) != 0) /* without IXON: what a key had stopped starts again */
        return bunshin_error_os("cannot look into a terminal");
    TRY(read_waiting(slave, &ret->typed));
    ret->held = !held ? PTY_FLOWS : is_ready(slave, POLLOUT) ? PTY_HELD_BY_KEY : PTY_HELD_BY_CALL;
    if (ret->held == PTY_HELD_BY_CALL)
        (void)ioctl(slave, TCXONC, TCOON);
    return NULL;
}

/* A character that the text does not hold. */
static uint8_t unused_character(const struct pty_queues *queues, uint8_t wish) {
    uint8_t character = wish ? wish : 4;
    for (int tries = 0; tries < 255 && queues->typed.size && memchr(queues->typed.data, character, queues->typed.size); tries++)
        character = character == 255 ? 1 : character + 1;
    return character;
}

/* What was taken out must go back: what fails is tried again. */
static ssize_t write_again(int fd, const void *data, size_t size) {
    ssize_t put = -1;
    for (int tries = 0; put < 0 && tries < 3; tries++)
        put = write(fd, data, size);
    return put;
}

/*
 * Input is worked on in the background. It is echoed while it is put back: once the echo is there, so is the input. The
 * echo goes nowhere else: the other direction is empty still.
 */
static struct bunshin_error *put_typed(int master, const struct pty_queues *queues, uint8_t end_of_input) {
    const uint32_t *ends = (const void *)queues->ends.data;
    size_t end_count = queues->ends.size / sizeof *ends, at = 0;
    for (size_t i = 0; i <= end_count; i++) {
        size_t to = i < end_count ? ends[i] : queues->typed.size;
        if (to > at && write_again(master, queues->typed.data + at, to - at) != (ssize_t)(to - at))
            return bunshin_error_os("cannot put back %zu bytes typed into a terminal", to - at);
        if (i < end_count && write_again(master, &end_of_input, 1) != 1)
            return bunshin_error_os("cannot put back an end of input");
        at = to;
    }
    char echo[4096];
    size_t left = queues->typed.size;
    for (int waited = 0; left && waited < PATIENCE_US;) {
        ssize_t got = read(master, echo, left < sizeof echo ? left : sizeof echo);
        if (got > 0)
            left -= (size_t)got;
        else {
            usleep(50);
            waited += 50;
        }
    }
    return left ? bunshin_error_new(BUNSHIN_ERROR_FORK, EIO, "%zu bytes typed into a terminal did not arrive again", left) : NULL;
}

static struct bunshin_error *hold_again(int master, int slave, const struct termios2 *settings, enum pty_held held) {
    if (held == PTY_FLOWS)
        return NULL;
    bool key = held == PTY_HELD_BY_KEY && settings->c_iflag & IXON && settings->c_cc[VSTOP] && !(settings->c_lflag & EXTPROC);
    if (!key)
        return ioctl(slave, TCXONC, TCOOFF) ? bunshin_error_os("cannot stop a terminal's output again") : NULL;
    if (write_again(master, &settings->c_cc[VSTOP], 1) != 1)
        return bunshin_error_os("cannot stop a terminal's output again");
    for (int waited = 0; waited < PATIENCE_US && is_ready(slave, POLLOUT); waited += 50)
        usleep(50);
    return NULL;
}

struct bunshin_error *pty_put_queues(int master, int slave, const void *settings_bytes, const struct pty_queues *queues) {
    const struct termios2 *settings = settings_bytes;
    struct termios2 plain;
    struct bunshin_error *error = NULL;
    if (queues->typed.size || queues->ends.size || queues->shown.size) {
        settings_without_changes(settings, &plain);
        plain.c_lflag |= ECHO;
        plain.c_cc[VEOF] = unused_character(queues, settings->c_cc[VEOF]);
        if (ioctl(slave, TCSETS2, &plain) != 0)
            return bunshin_error_os("cannot set up a terminal");
        error = put_typed(master, queues, plain.c_cc[VEOF]);
        for (size_t done = 0; !error && done < queues->shown.size;) {
            ssize_t put = write_again(slave, queues->shown.data + done, queues->shown.size - done);
            if (put <= 0)
                error = bunshin_error_os("cannot put back %zu bytes shown on a terminal", queues->shown.size - done);
            else
                done += (size_t)put;
        }
    }
    if (ioctl(slave, TCSETS2, settings) != 0 && ioctl(slave, TCSETS2, settings) != 0 && !error)
        error = bunshin_error_os("cannot set up a terminal");
    return error ? error : hold_again(master, slave, settings, queues->held);
}

void pty_queues_deinit(struct pty_queues *queues) {
    buffer_deinit(&queues->typed);
    buffer_deinit(&queues->ends);
    buffer_deinit(&queues->shown);
}
