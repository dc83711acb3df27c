/* The floor under a broker: a server that does the system calls of one and nothing else.
 *
 * One thread waits on epoll. A request arrives whole in a buffer, its bytes are checksummed and written to a file, and a
 * ready-made answer leaves; requests that arrived together are answered together. A fetch is answered by a header and
 * sendfile. No request is decoded, no record looked at, nothing kept in mind. Whatever a broker costs above this is its
 * own. `benchmarks/floor.py` compiles, starts and drives it.
 *
 *     floor FILE                prints its port and serves until its standard input ends
 *     floor FILE SIZE COUNT     appends COUNT times SIZE bytes, checksummed, and prints the CPU seconds that it took
 *
 * A request is a frame of Kafka: four bytes of length, two of API key. Keys that mean something here:
 *     1   fetch: its last twelve bytes are the position in FILE (8) and how many bytes are wanted (4)
 *     26  the end of a transaction: Prepare, a marker for each of four partitions, Complete are six writes
 *     998 the size of answers from now on is in the last four bytes
 *     999 the file begins anew
 * All others are written once.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "_crc32c.h"

#define FETCH 1
#define END_TXN 26
#define ANSWER_SIZE 998
#define BEGIN_ANEW 999
#define END_TXN_WRITES 6
#define MARKER_BYTES 78
#define BUFFER_BYTES (4 << 20)
#define ANSWERS_BYTES (1 << 20)
#define EVENTS 128

typedef struct {
    int socket;
    size_t used;
    uint8_t *bytes;
} connection;

static int file;
static off_t file_end;
static size_t answer_bytes = 64;
static uint8_t answers[ANSWERS_BYTES];
static volatile uint32_t checksum; /* so that no compiler leaves it out */

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void send_all(int socket, const uint8_t *bytes, size_t size, int flags) {
    while (size) {
        ssize_t sent = send(socket, bytes, size, MSG_NOSIGNAL | flags);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            fail("send");
        if (sent > 0) {
            bytes += sent;
            size -= (size_t)sent;
        }
    }
}

static void fetch(int socket, const uint8_t *end) {
    off_t at = ottla_big_endian_64(end - 12);
    size_t left = (size_t)ottla_big_endian_32(end - 4);
    send_all(socket, answers, answer_bytes, MSG_MORE);
    while (left) {
        ssize_t sent = sendfile(socket, file, &at, left);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            fail("sendfile");
        if (sent > 0)
            left -= (size_t)sent;
    }
}

static void append(const uint8_t *bytes, size_t size) {
    if (pwrite(file, bytes, size, file_end) != (ssize_t)size)
        fail("pwrite");
    file_end += (off_t)size;
}

/* One request without its length. Whether an answer of the usual kind is due. */
static int handle(int socket, const uint8_t *frame, size_t size) {
    int key = ottla_big_endian_16(frame);
    if (key == FETCH) {
        fetch(socket, frame + size);
        return 0;
    }
    if (key == ANSWER_SIZE)
        answer_bytes = (size_t)ottla_big_endian_32(frame + size - 4);
    else if (key == BEGIN_ANEW) {
        file_end = 0;
        if (ftruncate(file, 0))
            fail("ftruncate");
    } else {
        checksum = ottla_crc32c_of(0, frame, size);
        if (key == END_TXN)
            for (int number = 0; number < END_TXN_WRITES; number++)
                append(answers, MARKER_BYTES);
        else
            append(frame, size);
    }
    return 1;
}

/* What has arrived of a connection; 0 once it has ended. */
static int serve(connection *from) {
    ssize_t count = recv(from->socket, from->bytes + from->used, BUFFER_BYTES - from->used, 0);
    if (count <= 0)
        return count < 0 && (errno == EAGAIN || errno == EINTR);
    from->used += (size_t)count;
    size_t at = 0, due = 0;
    while (from->used - at >= 4) {
        size_t size = (uint32_t)ottla_big_endian_32(from->bytes + at);
        if (size < 2 || size > BUFFER_BYTES - 4) {
            fprintf(stderr, "a frame of %zu bytes\n", size);
            exit(1);
        }
        if (from->used - at - 4 < size)
            break;
        if (handle(from->socket, from->bytes + at + 4, size)) {
            due += answer_bytes;
            if (due + answer_bytes > ANSWERS_BYTES) {
                send_all(from->socket, answers, due, 0);
                due = 0;
            }
        }
        at += 4 + size;
    }
    if (due)
        send_all(from->socket, answers, due, 0);
    memmove(from->bytes, from->bytes + at, from->used - at);
    from->used -= at;
    return 1;
}

static void watch(int poll, int descriptor, void *who) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = who};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, descriptor, &event))
        fail("epoll_ctl");
}

static connection *accepted(int listener) {
    int one = 1, socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    connection *made = calloc(1, sizeof *made);
    if (socket < 0 || made == NULL)
        fail("accept");
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    made->socket = socket;
    made->bytes = malloc(BUFFER_BYTES);
    if (made->bytes == NULL)
        fail("malloc");
    return made;
}

static int append_only(size_t size, long count) {
    uint8_t *bytes = calloc(1, size);
    if (bytes == NULL)
        fail("calloc");
    append(bytes, size); /* not counted: the program and the file are there now */
    clock_t started = clock();
    while (count--) {
        checksum = ottla_crc32c_of(0, bytes, size);
        append(bytes, size);
    }
    printf("%.6f\n", (double)(clock() - started) / CLOCKS_PER_SEC);
    return 0;
}

int main(int count, char **arguments) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    static char standard_input;
    if (count != 2 && count != 4)
        return 2;
    ottla_crc32c_prepare();
    file = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file >= 0 && count == 4)
        return append_only(strtoul(arguments[2], NULL, 10), atol(arguments[3]));
    int listener = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0);
    if (file < 0 || listener < 0 || poll < 0 || bind(listener, (struct sockaddr *)&address, size) ||
        listen(listener, 1024) || getsockname(listener, (struct sockaddr *)&address, &size))
        fail("start");
    watch(poll, listener, NULL);
    watch(poll, STDIN_FILENO, &standard_input);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(poll, events, EVENTS, -1);
        for (int index = 0; index < ready; index++) {
            void *who = events[index].data.ptr;
            if (who == &standard_input)
                return 0;
            if (who == NULL) {
                connection *made = accepted(listener);
                watch(poll, made->socket, made);
            } else if (!serve(who)) {
                connection *ended = who;
                close(ended->socket);
                free(ended->bytes);
                free(ended);
            }
        }
    }
}
