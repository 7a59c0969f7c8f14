/*
 * story.c -- weights that were trained, and the tokens of their own vocabulary: the server tells the story
 * that llama2.c tells, and says where the words of a completion are apart.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat_test.h"

#define FOLDER "stories260K/"
#define BEGIN "Once upon a time"

/* The whole story, without the newline at its end. */
static bool read_story(char *to, size_t room)
{
    FILE *f = fopen(FOLDER "story.txt", "r");
    size_t n = f ? fread(to, 1, room - 1, f) : 0;
    if (f) fclose(f);
    CHECK(n > sizeof BEGIN && !memcmp(to, BEGIN, sizeof BEGIN - 1), "there is no story");
    to[n ? n - 1 : 0] = '\0';
    return n > sizeof BEGIN;
}

static void expect_text(int port, const char *prompt, int tokens, const char *want)
{
    char body[256];
    snprintf(body, sizeof body, "{\"prompt\": \"%s\", \"max_tokens\": %d, \"temperature\": 0}", prompt,
             tokens);
    struct answer *a = ask(port, "/v1/completions", body, false);
    CHECK(a->status == 200 && a->text && !strcmp(a->text, want), "after '%s': status %d, '%s', not '%s'",
          prompt, a->status, a->text ? a->text : "", want);
    answer_free(a);
}

/* The tokens of a list, as texts, in one; and how many they are. */
static size_t joined(const json_t *tokens, char *to, size_t room)
{
    size_t used = 0;
    to[0] = '\0';
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const char *token = json_string_value(json_array_get(tokens, i));
        size_t n = token ? strlen(token) : 0;
        if (used + n >= room) break;
        memcpy(to + used, token ? token : "", n);
        to[used += n] = '\0';
    }
    return json_array_size(tokens);
}

/* A word that follows the prompt has a space before it, in the text and as a token. */
static void expect_words(int port)
{
    char words[1024];
    struct reply r = http(port, "POST", "/v1/completions",
                          "{\"prompt\": \"" BEGIN ", there was a little\", \"max_tokens\": 9, "
                          "\"temperature\": 0, \"logprobs\": 1}");
    json_t *v = json_loadb(r.body, r.bytes, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(v, "choices"), 0);
    const char *text = json_string_value(json_object_get(choice, "text"));
    size_t n = joined(json_object_get(json_object_get(choice, "logprobs"), "tokens"), words, sizeof words);
    CHECK(r.status == 200 && text && !strncmp(text, " girl named Lily. ", 18), "status %d, '%s'", r.status,
          text ? text : r.body);
    CHECK(n == 9 && text && !strcmp(words, text), "%zu tokens '%s' of '%s'", n, words, text ? text : "");
    json_decref(v);
    reply_free(&r);
}

void test_story(const char *program)
{
    char story[2048];
    if (!read_story(story, sizeof story)) return;
    struct running s = server_start(program, (const char *const[]){FOLDER "stories260K.gguf", NULL});
    expect_text(s.port, "", 256, story);
    expect_text(s.port, BEGIN, 252, story + sizeof BEGIN - 1);
    expect_words(s.port);
    CHECK(server_stop(&s) == 0, "the server did not end well");
}
