/* A byte out of band in a stream, where the kernel has such: kept in its place, beside the line. */
#include "letters.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <linux/sockios.h>

int main(void) {
    int pair[2], mark = 0;
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    must(write(pair[0], "before", 6));
    bool has = send(pair[0], "abc!", 4, MSG_OOB) == 4;
    must(write(pair[0], "after", 5));
    ready();
    go();
    if (has) {
        struct pollfd state = {.fd = pair[1], .events = POLLPRI};
        expect(poll(&state, 1, 0) == 1 && state.revents & POLLPRI, "nothing urgent");
        expect_text(pair[1], "beforeabc");
        must(ioctl(pair[1], SIOCATMARK, &mark));
        expect(mark == 1, "not at the mark");
        char urgent = 0;
        expect(recv(pair[1], &urgent, 1, MSG_OOB) == 1 && urgent == '!', "the urgent byte is %c", urgent);
        expect_text(pair[1], "after");
    } else {
        expect_text(pair[1], "beforeafter");
    }
    ok();
}
