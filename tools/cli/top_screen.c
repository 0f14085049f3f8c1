/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt top on a terminal, by ncurses where configure found it. */
#include "config.h"

#include "tools/cli/top.h"

#ifdef HAVE_NCURSES
#include <curses.h>

#include "runtime/base/clock.h"

static SCREEN *screen;

bool top_screen_open(void)
{
	/* newterm says that a terminal is not known; initscr ends the program. */
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return false;
	set_term(screen);
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	if (has_colors() && start_color() == OK && use_default_colors() == OK)
		init_pair(1, COLOR_RED, -1);
	return true;
}

struct place {
	int y;
};

static void draw_line(void *context, enum top_mark mark, const char *text)
{
	struct place *place = context;
	int attribute = mark == TOP_TITLE ? A_BOLD : mark == TOP_HEAD ? A_REVERSE : mark == TOP_BAD ? COLOR_PAIR(1) | A_BOLD
		      : mark == TOP_JOB   ? A_DIM : A_NORMAL;

	if (place->y >= LINES)
		return;
	attrset(attribute);
	mvaddnstr(place->y, 0, text, COLS);
	if (mark == TOP_HEAD)
		mvchgat(place->y, 0, -1, A_REVERSE, 0, NULL);
	attrset(A_NORMAL);
	place->y++;
}

void top_screen_show(const struct top_sample *sample)
{
	struct place place = {0};

	erase();
	top_lines(sample, draw_line, &place);
	if (place.y < LINES)
		mvaddnstr(LINES - 1, 0, "q ends", COLS);
	refresh();
}

bool top_screen_wait(double seconds)
{
	uint64_t until = tpck_clock_monotonic_ns() + (uint64_t)(seconds * 5e8);
	int key;

	timeout((int)(seconds * 1000));
	key = getch();
	/* A window of another size is shown anew at once. A terminal that has nothing to say, and does not wait, is gone. */
	return key == 'q' || key == 'Q' || (key == ERR && tpck_clock_monotonic_ns() < until);
}

void top_screen_close(void)
{
	endwin();
	delscreen(screen);
}
#else
bool top_screen_open(void)
{
	return false;
}

void top_screen_show(const struct top_sample *sample)
{
	(void)sample;
}

bool top_screen_wait(double seconds)
{
	(void)seconds;
	return true;
}

void top_screen_close(void)
{
}
#endif
