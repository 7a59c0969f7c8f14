/*
 * words_keys.c -- the tables of words_keys.h.
 */
#include <stdio.h>
#include <string.h>

#include "words_keys.h"

/* ---- GGUF ---- */

static const char *const models[] = {"bert", "gpt2", "llama", NULL};
enum { BERT = 1, GPT2 = 2, LLAMA = 4 };

static const struct key words[] = {
    {"tokenizer.ggml.model tokenizer.ggml.tokens tokenizer.ggml.token_type", KEY_ALL, KEY_READ, NULL,
     "the kind of tokenizer; tokens by ids; which of them are special"},
    {"tokenizer.ggml.pre tokenizer.ggml.merges", GPT2, KEY_READ, NULL,
     "how a text is cut, by name; pairs that are merged"},
    {"tokenizer.ggml.scores", LLAMA, KEY_READ, NULL, "which pair is merged first"},
    {"tokenizer.ggml.scores", BERT | GPT2, KEY_IGNORED, NULL, "merges or lengths tell the order"},
    {"tokenizer.ggml.pre tokenizer.ggml.merges", BERT | LLAMA, KEY_IGNORED, NULL,
     "llama.cpp does not read it of these"},
    {"tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id tokenizer.ggml.unknown_token_id"
     " tokenizer.ggml.padding_token_id tokenizer.ggml.cls_token_id tokenizer.ggml.seperator_token_id"
     " tokenizer.ggml.mask_token_id",
     KEY_ALL, KEY_READ, NULL, "special tokens by their parts"},
    {"tokenizer.ggml.eot_token_id tokenizer.ggml.eom_token_id tokenizer.ggml.fim_pad_token_id"
     " tokenizer.ggml.fim_rep_token_id tokenizer.ggml.fim_sep_token_id",
     KEY_ALL, KEY_IGNORED, NULL,
     "they end a text, for which the model reads them; no text has them by itself"},
    {"tokenizer.ggml.fim_pre_token_id tokenizer.ggml.fim_suf_token_id tokenizer.ggml.fim_mid_token_id"
     " tokenizer.ggml.prefix_token_id tokenizer.ggml.suffix_token_id tokenizer.ggml.middle_token_id",
     KEY_ALL, KEY_IGNORED, NULL, "for who asks to fill a gap, which nobody can here"},
    {"tokenizer.ggml.add_bos_token tokenizer.ggml.add_eos_token", GPT2 | LLAMA, KEY_READ, NULL,
     "whether a text begins and ends with those tokens"},
    {"tokenizer.ggml.add_bos_token tokenizer.ggml.add_eos_token", BERT, KEY_IGNORED, "[true]",
     "[CLS] and [SEP] stand around each text"},
    {"tokenizer.ggml.add_sep_token", KEY_ALL, KEY_IGNORED, NULL, "between two texts, of which there is one"},
    {"tokenizer.ggml.add_space_prefix", LLAMA, KEY_READ, NULL, "whether a text begins with a blank"},
    {"tokenizer.ggml.add_space_prefix", BERT | GPT2, KEY_IGNORED, "[false]", "these have none"},
    {"tokenizer.ggml.remove_extra_whitespaces", KEY_ALL, KEY_IGNORED, "[false]",
     "blanks that are left out are not supported"},
    {"tokenizer.ggml.precompiled_charsmap", KEY_ALL, KEY_IGNORED, "[[]]",
     "another normal form of the text is not supported"},
    {"tokenizer.ggml.token_type_count", KEY_ALL, KEY_IGNORED, NULL, "the table of types has so many rows"},
    {"tokenizer.ggml.added_tokens", KEY_ALL, KEY_IGNORED, NULL, "token_type says which are added"},
    {"tokenizer.huggingface.json tokenizer.rwkv.world", KEY_ALL, KEY_IGNORED, NULL,
     "copies of the tokenizer, which llama.cpp does not read"},
    {"tokenizer.chat_template tokenizer.chat_template.* tokenizer.chat_templates", KEY_ALL, KEY_IGNORED, NULL,
     "of chats: tokenizer.chat_template is their template, others are for who asks for them by name"},
};
const struct key_table words_keys = {"tokenizers in GGUF, by tokenizer.ggml.model", models, words,
                                     sizeof words / sizeof *words};

static bool has_row(const char *name)
{
    return key_find(&words_keys, KEY_ALL, KEY_READ, name, NULL) ||
           key_find(&words_keys, KEY_ALL, KEY_IGNORED, name, NULL);
}

bool words_keys_known(const json_t *metadata, const char *what, char *why, size_t size)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)metadata, name, v)
    {
        if (strncmp(name, "tokenizer.", 10) || has_row(name)) continue;
        snprintf(why, size, "%s: key '%.100s' is not known, and may change a text's tokens", what, name);
        return false;
    }
    return true;
}

/* ---- tokenizer_config.json ---- */

static const char *const files[] = {"tokenizer.json", "vocab.json", "vocab.txt", NULL};
enum { FILE_JSON = 1, VOCAB_JSON = 2, VOCAB_TXT = 4 };

static const struct key settings[] = {
    {"tokenizer_class", KEY_ALL, KEY_READ, NULL, "which of transformers' classes reads the files"},
    {"bos_token eos_token unk_token sep_token pad_token cls_token mask_token", KEY_ALL, KEY_READ, NULL,
     "special tokens by their parts: a text is searched for them"},
    {"added_tokens_decoder additional_special_tokens extra_special_tokens", KEY_ALL, KEY_READ, NULL,
     "tokens that a text is searched for"},
    {"add_bos_token add_eos_token", KEY_ALL, KEY_READ, NULL,
     "whether a text begins and ends so, for the classes of LLaMA and Gemma; others do not read it, and one"
     " of vocab.json is refused"},
    {"add_prefix_space", KEY_ALL, KEY_READ, NULL,
     "whether a text begins with a blank; of classes that do not read it, what tokenizer.json says, too"},
    {"do_lower_case strip_accents tokenize_chinese_chars", KEY_ALL, KEY_READ, NULL,
     "BERT's normal form, in place of what tokenizer.json says"},
    {"*_token", KEY_ALL, KEY_READ, NULL, "a token of the model's, which must be one of the added ones"},
    {"chat_template", KEY_ALL, KEY_IGNORED, NULL, "of chats, which read it"},
    {"model_max_length max_length max_len stride truncation truncation_side truncation_strategy padding"
     " padding_side pad_to_multiple_of pad_token_type_id",
     KEY_ALL, KEY_IGNORED, NULL, "texts are neither cut nor padded here; embed reads model_max_length"},
    {"clean_up_tokenization_spaces spaces_between_special_tokens errors", KEY_ALL, KEY_IGNORED, NULL,
     "of texts made of tokens, which are here what the tokens say; tokens of a text are the same"},
    {"legacy use_default_system_prompt from_slow trim_offsets", KEY_ALL, KEY_IGNORED, NULL,
     "how tokenizer.json was made; offsets"},
    {"model_input_names return_token_type_ids return_tensors return_attention_mask", KEY_ALL, KEY_IGNORED,
     NULL, "what else a caller wants to see"},
    {"name_or_path _name_or_path tokenizer_file vocab_file merges_file special_tokens_map_file vocab_size"
     " processor_class image_processor_type auto_map use_fast backend is_local local_files_only"
     " trust_remote_code device_map _commit_hash transformers_version unsloth_version response_schema"
     " full_tokenizer_file use_auth_token revision cache_dir",
     KEY_ALL, KEY_IGNORED, NULL, "where the files come from, and what reads them elsewhere"},
    {"split_special_tokens", KEY_ALL, KEY_IGNORED, "[false]", "a text is always searched for special tokens"},
    {"sp_model_kwargs", KEY_ALL, KEY_IGNORED, "[{}]", "pieces drawn at random are not supported"},
    {"do_basic_tokenize", KEY_ALL, KEY_IGNORED, "[true]", "BERT without its own cuts is not supported"},
    {"never_split init_inputs", KEY_ALL, KEY_IGNORED, "[[]]", "words that are not cut are not supported"},
    {"wordpieces_prefix", KEY_ALL, KEY_IGNORED, "[\"##\"]", "other marks are in tokenizer.json"},
    {"fix_mistral_regex", KEY_ALL, KEY_IGNORED, "[false]", "tokenizer.json's own expressions are what cuts"},
    {"dropout", KEY_ALL, KEY_IGNORED, "[0]", "a dropout draws tokens at random"},
};
const struct key_table settings_keys = {"tokenizer_config.json, by the file that has the words", files,
                                        settings, sizeof settings / sizeof *settings};

static const char *const all[] = {"all", NULL};

static const struct key map[] = {
    {"bos_token eos_token unk_token sep_token pad_token cls_token mask_token additional_special_tokens"
     " extra_special_tokens",
     KEY_ALL, KEY_READ, NULL, "as in tokenizer_config.json, which counts where both say something"},
    {"*_token", KEY_ALL, KEY_READ, NULL, "a token of the model's, which must be one of the added ones"},
};
const struct key_table map_keys = {"special_tokens_map.json", all, map, sizeof map / sizeof *map};
