#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

/* One server and its clients on one thread: the loop is turned while a client waits. The
 * hostile clients are in e2e/test_http.py. */
static struct {
    uv_loop_t loop;
    struct http_server *server;
    struct http_request *held; /* of /hold and /stream */
    int done, gone, room;
} t;

static void on_done(struct http_request *r, void *user, bool gone)
{
    assert_ptr_equal(user, &t);
    t.held = NULL;
    t.done++;
    t.gone += gone;
}

static void hold(struct http_request *r, void *arg)
{
    t.held = r;
    http_set_user(r, &t, on_done);
}

static void echo(struct http_request *r, void *arg)
{
    size_t n;
    const char *body = http_body(r, &n);
    assert_int_equal(strlen(body), n);
    http_reply(r, 200, "text/plain", body, n);
}

static void on_room(struct http_request *r, void *user)
{
    assert_ptr_equal(user, &t);
    t.room++;
}

static void stream(struct http_request *r, void *arg)
{
    hold(r, arg);
    http_stream_begin(r, 200, "text/event-stream", on_room);
}

static const struct http_route routes[] = {
    {HTTP_POST, "/v1/echo", echo, false},
    {HTTP_GET, "/hold", hold, false},
    {HTTP_GET, "/stream", stream, false},
    {0},
};

static struct http_config config(void)
{
    return (struct http_config){.host = "localhost",
                                .max_body = 1000,
                                .max_connections = 100,
                                .idle_timeout_s = 120,
                                .header_deadline_ms = 5000,
                                .body_deadline_ms = 5000,
                                .max_stream_queue = 100000,
                                .max_replies = 10 << 20,
                                .slow_reader_ms = 5000};
}

static int open_server(void **state)
{
    struct http_config c = config();
    struct err e;
    memset(&t, 0, sizeof t);
    assert_int_equal(uv_loop_init(&t.loop), 0);
    t.server = http_server_open(&t.loop, &c, routes, NULL, &e);
    if (!t.server)
        fail_msg("%s", e.msg);
    return 0;
}

static int close_server(void **state)
{
    http_server_close(t.server);
    uv_run(&t.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&t.loop), 0);
    return 0;
}

static int client(const char *request)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(http_server_port(t.server))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(send(fd, request, strlen(request), 0), (ssize_t)strlen(request));
    return fd;
}

/* Turns the loop until *what is not 0, at most two seconds. */
static void turn_until(const int *what)
{
    for (int i = 0; i < 2000 && !*what; i++) {
        uv_run(&t.loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    assert_true(*what);
}

/* Turns the loop until the reply contains `end` (or is closed where end is NULL). */
static const char *answer(int fd, const char *end)
{
    static char reply[1 << 20];
    size_t n = 0;
    reply[0] = '\0';
    for (int i = 0; i < 2000 && !(end && strstr(reply, end)); i++) {
        uv_run(&t.loop, UV_RUN_NOWAIT);
        ssize_t got = recv(fd, reply + n, sizeof reply - 1 - n, 0);
        if (got == 0)
            return reply;
        if (got < 0)
            usleep(1000);
        n += got > 0 ? (size_t)got : 0;
        reply[n] = '\0';
    }
    return reply;
}

static void held_by(int fd)
{
    for (int i = 0; i < 2000 && !t.held; i++) {
        uv_run(&t.loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    assert_non_null(t.held);
}

static void a_body_comes_back_whole(void **state)
{
    int fd = client("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    const char *r = answer(fd, "hello");
    assert_contains(r, "HTTP/1.1 200 OK\r\n");
    assert_contains(r, "x-request-id: req-");
    close(fd);
}

static void an_answer_may_come_later(void **state)
{
    int fd = client("GET /hold HTTP/1.1\r\nHost: a\r\nx-request-id: mine\r\n\r\n");
    held_by(fd);
    assert_int_equal(http_server_n_requests(t.server), 1);
    http_reply_error(t.held, 429, "queue_full", NULL, 3, "full: %d", 7);
    const char *r = answer(fd, "}}");
    assert_contains(r, "x-request-id: mine\r\n");
    assert_contains(r, "Retry-After: 3\r\n");
    assert_contains(r, "{\"error\":{\"message\":\"full: 7\",\"type\":\"rate_limit_error\","
                       "\"param\":null,\"code\":\"queue_full\"}}");
    turn_until(&t.done);
    assert_int_equal(t.gone, 0);
    assert_int_equal(http_server_n_requests(t.server), 0);
    close(fd);
}

static void a_client_that_leaves_ends_its_request_once(void **state)
{
    int fd = client("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    held_by(fd);
    close(fd);
    turn_until(&t.done);
    for (int i = 0; i < 20; i++)
        uv_run(&t.loop, UV_RUN_NOWAIT);
    assert_int_equal(t.done, 1);
    assert_int_equal(t.gone, 1);
}

static void a_reply_to_a_client_that_has_just_left_is_harmless(void **state)
{
    int fd = client("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    held_by(fd);
    close(fd);
    http_reply(t.held, 200, "text/plain", "x", 1);
    turn_until(&t.done);
    assert_int_equal(t.done, 1);
}

static void what_is_written_in_one_turn_goes_out_together(void **state)
{
    int fd = client("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_contains(answer(fd, "\r\n\r\n"), "Transfer-Encoding: chunked");
    for (int i = 0; i < 10; i++)
        assert_true(http_stream_write(t.held, "data: 1\n\n", 9));
    assert_contains(answer(fd, "\n\n\r\n"), "5A\r\ndata: 1\n\n");
    http_stream_end(t.held);
    assert_string_equal(answer(fd, "0\r\n\r\n"), "0\r\n\r\n");
    turn_until(&t.done);
    assert_int_equal(t.gone, 0);
    close(fd);
}

static void assert_slow_readers_cut(uint64_t n)
{
    struct http_stats s;
    http_get_stats(t.server, &s);
    assert_int_equal(s.slow_readers_cut, n);
}

static void a_reader_is_not_slow_because_much_was_written_at_once(void **state)
{
    static char data[400000];
    int fd = client("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    held_by(fd);
    memset(data, 'x', sizeof data);
    assert_true(http_stream_write(t.held, data, sizeof data));
    assert_true(http_stream_write(t.held, data, sizeof data));
    http_stream_end(t.held);
    answer(fd, "0\r\n\r\n");
    turn_until(&t.done);
    assert_int_equal(t.gone, 0);
    assert_slow_readers_cut(0);
    close(fd);
}

static void who_writes_is_told_once_when_there_is_room_again(void **state)
{
    static char data[2000000]; /* more than the sockets hold */
    int fd = client("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    held_by(fd);
    assert_true(http_stream_has_room(t.held));
    assert_true(http_stream_write(t.held, "data", 4));
    assert_true(http_stream_has_room(t.held));
    memset(data, 'x', sizeof data);
    for (int i = 0; i < 4; i++)
        assert_true(http_stream_write(t.held, data, sizeof data));
    assert_false(http_stream_has_room(t.held));
    for (int i = 0; i < 50; i++)
        uv_run(&t.loop, UV_RUN_NOWAIT);
    assert_int_equal(t.room, 0); /* nothing was read */
    for (int i = 0; i < 2000 && !t.room; i++)
        answer(fd, "x");
    assert_int_equal(t.room, 1);
    assert_true(http_stream_has_room(t.held));
    http_stream_end(t.held);
    for (int i = 0; i < 2000 && !t.done; i++)
        answer(fd, "x");
    assert_int_equal(t.room, 1); /* it was asked for once */
    assert_int_equal(t.gone, 0);
    close(fd);
}

static int big_reply(void)
{
    static char data[8 << 20];
    int fd = client("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    held_by(fd);
    memset(data, 'x', sizeof data);
    http_reply(t.held, 200, "text/plain", data, sizeof data);
    return fd;
}

static void large_replies_are_refused_while_too_much_waits_for_its_readers(void **state)
{
    int fd = big_reply();
    for (int i = 0; i < 50; i++)
        uv_run(&t.loop, UV_RUN_NOWAIT);
    assert_int_equal(t.done, 0); /* it is not read */
    t.held = NULL;
    int refused = big_reply();
    const char *r = answer(refused, "}}");
    assert_contains(r, "HTTP/1.1 503 ");
    assert_contains(r, "Retry-After: 5\r\n");
    turn_until(&t.done);
    int small = client("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_contains(answer(small, "hello"), "HTTP/1.1 200 ");
    close(fd);
    t.done = 0;
    turn_until(&t.done);
    int taken = big_reply();
    assert_contains(answer(taken, "xxx"), "HTTP/1.1 200 ");
    close(taken);
    close(small);
    close(refused);
}

static void an_aborted_stream_does_not_look_whole(void **state)
{
    int fd = client("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    answer(fd, "\r\n\r\n");
    assert_true(http_stream_write(t.held, "data: 1\n\n", 9));
    assert_contains(answer(fd, "1\n\n\r\n"), "data: 1");
    http_stream_abort(t.held);
    assert_false(http_stream_write(t.held, "data: 2\n\n", 9));
    assert_null(strstr(answer(fd, NULL), "0\r\n\r\n"));
    turn_until(&t.done);
    assert_int_equal(t.gone, 1);
    assert_slow_readers_cut(0);
    close(fd);
}

static void closing_the_server_ends_what_waits(void **state)
{
    open_server(state);
    int a = client("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    held_by(a);
    int b = client("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe");
    uv_run(&t.loop, UV_RUN_NOWAIT);
    close_server(state);
    assert_int_equal(t.done, 1);
    assert_int_equal(t.gone, 1);
    close(a);
    close(b);
}

static void two_framings_of_a_body_are_refused(void **state)
{
    int fd = client("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    const char *r = answer(fd, NULL);
    assert_contains(r, "HTTP/1.1 400 ");
    assert_contains(r, "Connection: close");
    close(fd);
}

static void a_content_length_that_is_no_number_is_refused_once(void **state)
{
    int fd = client("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello");
    const char *r = answer(fd, NULL);
    assert_contains(r, "HTTP/1.1 400 ");
    assert_contains(r, "{\"error\":");
    assert_null(strstr(r + 1, "HTTP/1.1 "));
    close(fd);
}

static void a_client_that_leaves_half_way_through_its_body_is_forgotten_soon(void **state)
{
    close(client("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel"));
    struct http_stats s = {0};
    for (int i = 0; i < 3000 && !(s.requests && !s.connections_open); i++) {
        uv_run(&t.loop, UV_RUN_NOWAIT);
        usleep(1000);
        http_get_stats(t.server, &s);
    }
    assert_int_equal(s.requests, 1);
    assert_int_equal(s.connections_open, 0);
}

static void a_port_in_use_is_named(void **state)
{
    struct http_config c = config();
    struct err e;
    c.port = http_server_port(t.server);
    assert_null(http_server_open(&t.loop, &c, routes, NULL, &e));
    assert_contains(e.msg, "cannot listen on localhost:");
    assert_contains(e.msg, "in use");
}

static void a_host_that_does_not_exist_is_named(void **state)
{
    struct http_config c = config();
    struct err e;
    c.host = "256.1.1.1.";
    assert_null(http_server_open(&t.loop, &c, routes, NULL, &e));
    assert_contains(e.msg, "host '256.1.1.1.'");
}

static void error_texts_are_json_whatever_the_message(void **state)
{
    char *s = http_error_body(500, NULL, "a\xFF", "say \"\xC3\xA9\"\n");
    assert_string_equal(s, "{\"error\":{\"message\":\"say \\\"\xC3\xA9\\\"\\n\",\"type\":"
                           "\"server_error\",\"param\":\"a\xEF\xBF\xBD\",\"code\":null}}");
    free(s);
}

#define with_server(f) cmocka_unit_test_setup_teardown(f, open_server, close_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_server(a_body_comes_back_whole),
        with_server(an_answer_may_come_later),
        with_server(a_client_that_leaves_ends_its_request_once),
        with_server(a_reply_to_a_client_that_has_just_left_is_harmless),
        with_server(what_is_written_in_one_turn_goes_out_together),
        with_server(a_reader_is_not_slow_because_much_was_written_at_once),
        with_server(who_writes_is_told_once_when_there_is_room_again),
        with_server(large_replies_are_refused_while_too_much_waits_for_its_readers),
        with_server(an_aborted_stream_does_not_look_whole),
        cmocka_unit_test(closing_the_server_ends_what_waits),
        with_server(two_framings_of_a_body_are_refused),
        with_server(a_content_length_that_is_no_number_is_refused_once),
        with_server(a_client_that_leaves_half_way_through_its_body_is_forgotten_soon),
        with_server(a_port_in_use_is_named),
        with_server(a_host_that_does_not_exist_is_named),
        cmocka_unit_test(error_texts_are_json_whatever_the_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
