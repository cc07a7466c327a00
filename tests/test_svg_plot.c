#include "svg_plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

/* --- a checker of well-formedness, for the XML that we write --- */

static const char *check_entity(const char *p)
{
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(p, known[i], strlen(known[i])) == 0)
            return p + strlen(known[i]);
    fail_msg("a bare & at: %.40s", p);
    return p;
}

static const char *check_attributes(const char *p)
{
    while (*p == ' ') {
        p += 1 + strspn(p + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-");
        if (strncmp(p, "=\"", 2) != 0)
            fail_msg("an attribute without a value at: %.40s", p);
        for (p += 2; *p && *p != '"';) {
            if (*p == '<')
                fail_msg("< in an attribute at: %.40s", p);
            p = *p == '&' ? check_entity(p) : p + 1;
        }
        p++;
    }
    return p;
}

static void check_well_formed(const char *text)
{
    char open[32][32];
    size_t depth = 0;
    for (const char *p = text; *p;) {
        if (*p == '&') {
            p = check_entity(p);
        } else if (*p != '<') {
            if ((unsigned char)*p < 0x20 && *p != '\n' && *p != '\t')
                fail_msg("a control character at: %.40s", p);
            p++;
        } else if (p[1] == '/') {
            size_t n = strcspn(p + 2, ">");
            assert_true(depth > 0);
            if (n != strlen(open[--depth]) || strncmp(open[depth], p + 2, n) != 0)
                fail_msg("<%s> is closed by %.20s", open[depth], p);
            p += n + 3;
        } else {
            size_t n = strspn(p + 1, "abcdefghijklmnopqrstuvwxyz");
            assert_true(n > 0 && n < sizeof open[0] && depth < 32);
            snprintf(open[depth++], sizeof open[0], "%.*s", (int)n, p + 1);
            p = check_attributes(p + 1 + n);
            if (*p == '/') {
                depth--;
                p++;
            }
            if (*p++ != '>')
                fail_msg("a tag that does not end at: %.40s", p);
        }
    }
    assert_int_equal(depth, 0);
}

static char *draw(const struct plot_figure *f)
{
    struct buf out = {0};
    svg_plot_write(f, &out);
    assert_false(out.failed);
    check_well_formed(out.data);
    return out.data;
}

static char *draw_series(const char *label, const struct plot_point *points, int n)
{
    const struct plot_panel p = {
        .title = label,
        .x_unit = label,
        .y_unit = label,
        .series = {{.label = label, .points = points, .n = n}},
        .n_series = 1,
    };
    return draw(&(struct plot_figure){.title = label, .note = label, .panels = &p, .n_panels = 1});
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

/* Centres of the first n circles. */
static void read_points(const char *svg, struct plot_point *out, int n)
{
    for (int i = 0; i < n; i++) {
        svg = strstr(svg, "<circle");
        assert_non_null(svg);
        assert_non_null(strstr(svg, "cx=\""));
        out[i].x = atof(strstr(svg, "cx=\"") + 4);
        out[i].y = atof(strstr(svg, "cy=\"") + 4);
        svg++;
    }
}

/* The place of the text element with exactly this content. */
static struct plot_point place_of(const char *svg, const char *content)
{
    char part[64];
    snprintf(part, sizeof part, ">%s</text>", content);
    const char *end = strstr(svg, part), *at = end;
    if (!end)
        fail_msg("no text %s", content);
    while (strncmp(at, "<text", 5) != 0)
        at--;
    return (struct plot_point){atof(strstr(at, "x=\"") + 3), atof(strstr(at, "y=\"") + 3)};
}

#define assert_near(a, b) assert_true(fabs((a) - (b)) < 0.11)

static void points_lie_where_their_values_say(void **state)
{
    const struct plot_point points[] = {{0, 0}, {50, 150}, {200, 600}};
    struct plot_point at[3];
    char *svg = draw_series("", points, 3);
    read_points(svg, at, 3);
    assert_int_equal(count(svg, "<circle"), 3);
    assert_near((at[1].x - at[0].x) * 4, at[2].x - at[0].x);
    assert_near((at[1].y - at[0].y) * 4, at[2].y - at[0].y);
    assert_true(at[2].x > at[0].x + 100 && at[2].y < at[0].y - 100);
    /* and where the ticks say: those of y are 4 below the middle of their text */
    assert_near(place_of(svg, "50").x, at[1].x);
    const double y0 = place_of(svg, "0").y - 4, y400 = place_of(svg, "400").y - 4;
    assert_near(at[0].y, y0);
    assert_near(at[1].y, y0 + (y400 - y0) * 150 / 400);
    /* a value of 0 lies on the axis */
    const char *axis = strstr(svg, "class=\"a\" d=\"M");
    assert_non_null(axis);
    assert_near(atof(strchr(axis, 'M') + 1 + strcspn(strchr(axis, 'M'), " ")), at[0].y);
    char line[200];
    snprintf(line, sizeof line, "d=\"M%.2f %.2fL%.2f %.2fL%.2f %.2f\"", at[0].x, at[0].y, at[1].x,
             at[1].y, at[2].x, at[2].y);
    assert_contains(svg, line);
    free(svg);
}

static void an_axis_reaches_below_zero_for_negative_values(void **state)
{
    const struct plot_point points[] = {{-10, -3}, {10, 5}};
    struct plot_point at[2];
    char *svg = draw_series("", points, 2);
    read_points(svg, at, 2);
    assert_near(place_of(svg, "-10").x, at[0].x);
    assert_true(place_of(svg, "-4").y - 4 >= at[0].y);
    assert_true(place_of(svg, "0").y - 4 < at[0].y);
    free(svg);
}

static void hostile_text_is_escaped(void **state)
{
    const char *bad = "</text><script>alert('1')</script>&amp;\" \x01\x1b[0m \xff\xfe \xef\xbf\xbf";
    char *svg = draw_series(bad, &(struct plot_point){1, 1}, 1);
    assert_null(strstr(svg, "<script"));
    assert_contains(svg, "&lt;/text&gt;&lt;script&gt;");
    assert_contains(
        svg, "&amp;amp;\" \xEF\xBF\xBD\xEF\xBF\xBD[0m \xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD");
    free(svg);
    char *longer = malloc(100001);
    memset(longer, '&', 100000);
    longer[100000] = '\0';
    svg = draw_series(longer, NULL, 0);
    assert_true(strlen(svg) < 20000);
    assert_contains(svg, "…");
    free(svg);
    free(longer);
}

static void no_points_one_point_and_no_panels_are_figures_too(void **state)
{
    char *svg = draw_series("empty", NULL, 0);
    assert_int_equal(count(svg, "<circle"), 0);
    assert_null(strstr(svg, "class=\"l\""));
    free(svg);
    static const struct plot_point one[] = {{0, 0}, {1e15, 1e15}, {1e-15, 1e-15}, {5, 7}};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        svg = draw_series("one", &one[i], 1);
        assert_int_equal(count(svg, "<circle"), 1);
        assert_null(strstr(svg, "nan"));
        assert_null(strstr(svg, "inf"));
        free(svg);
    }
    svg = draw(&(struct plot_figure){.title = "t", .note = ""});
    assert_contains(svg, ">t</text>");
    free(svg);
}

static void what_is_not_finite_is_left_out_and_breaks_the_line(void **state)
{
    const struct plot_point points[] = {{0, 1},   {1, 2},      {2, NAN}, {3, 4}, {4, INFINITY},
                                        {NAN, 5}, {6, -1e300}, {7, 8},   {8, 9}};
    char *svg = draw_series("", points, 9);
    assert_int_equal(count(svg, "<circle"), 5);
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    const char *line = strstr(svg, "class=\"l\" d=\"");
    assert_non_null(line);
    int moves = 0, joins = 0;
    for (line += 13; *line != '"'; line++) {
        moves += *line == 'M';
        joins += *line == 'L';
    }
    assert_int_equal(moves, 3);
    assert_int_equal(joins, 2);
    free(svg);
}

static void several_series_have_a_legend_and_panels_do_not_overlap(void **state)
{
    const struct plot_point points[] = {{1, 10}, {2, 20}};
    struct plot_panel p[5];
    for (int i = 0; i < 5; i++)
        p[i] = (struct plot_panel){
            .title = "panel",
            .x_unit = "x",
            .y_unit = "y",
            .series = {{"first", points, 2}, {"second", points, 1}, {"third", points, 0}},
            .n_series = i == 4 ? 3 : 1,
        };
    char *svg = draw(&(struct plot_figure){.title = "t", .note = "", .panels = p, .n_panels = 5});
    assert_int_equal(count(svg, ">first</text>"), 1);
    assert_contains(svg, ">second</text>");
    assert_contains(svg, ">third</text>");
    assert_int_equal(count(svg, "translate("), 5);
    assert_int_equal(count(svg, "translate(16,"), 2);
    free(svg);
}

static void nothing_is_fetched_and_both_colour_schemes_are_served(void **state)
{
    char *svg = draw_series("a", NULL, 0);
    assert_contains(svg, "prefers-color-scheme:dark");
    assert_int_equal(count(svg, "http"), 1); /* the name space */
    assert_null(strstr(svg, "url("));
    assert_null(strstr(svg, "@import"));
    assert_null(strstr(svg, "<script"));
    free(svg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_lie_where_their_values_say),
        cmocka_unit_test(an_axis_reaches_below_zero_for_negative_values),
        cmocka_unit_test(hostile_text_is_escaped),
        cmocka_unit_test(no_points_one_point_and_no_panels_are_figures_too),
        cmocka_unit_test(what_is_not_finite_is_left_out_and_breaks_the_line),
        cmocka_unit_test(several_series_have_a_legend_and_panels_do_not_overlap),
        cmocka_unit_test(nothing_is_fetched_and_both_colour_schemes_are_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
