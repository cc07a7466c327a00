-- common.lua: what the scripts of wrk share. A script loads it, then says how to make a body and
-- how to check a reply.
--
-- From the environment: LOAD_MODEL (a model's name; none is sent without it), LOAD_MAX_TOKENS (32),
-- TOKEND_API_KEY. `done` prints one line for run.sh:
--   RESULT <requests/s> <p50 ms> <p99 ms> <requests> <errors> <note>
local common = {}

wrk.headers["Content-Type"] = "application/json"
local key = os.getenv("TOKEND_API_KEY")
if key and key ~= "" then
    wrk.headers["Authorization"] = "Bearer " .. key
end

common.max_tokens = tonumber(os.getenv("LOAD_MAX_TOKENS") or "32")

local function quoted(text)
    return '"' .. text:gsub('[%c"\\]', function(c)
        return string.format("\\u%04x", c:byte())
    end) .. '"'
end

-- A chat's body: the conversation, and an answer of exactly max_tokens tokens.
function common.chat(system, question, stream)
    local model = os.getenv("LOAD_MODEL")
    local parts = { "{" }
    if model and model ~= "" then
        parts[#parts + 1] = '"model": ' .. quoted(model) .. ", "
    end
    parts[#parts + 1] = '"messages": ['
    if system then
        parts[#parts + 1] = '{"role": "system", "content": ' .. quoted(system) .. "}, "
    end
    parts[#parts + 1] = '{"role": "user", "content": ' .. quoted(question) .. "}], "
    if stream then
        parts[#parts + 1] = '"stream": true, "stream_options": {"include_usage": true}, '
    end
    parts[#parts + 1] = string.format('"temperature": 0, "ignore_eos": true, "max_tokens": %d}', common.max_tokens)
    return table.concat(parts)
end

-- A question that no other request of this run asks.
local asked = 0
function common.question()
    asked = asked + 1
    return string.format("Question %d of asker %d: say in one sentence what the number %d is good for.",
        asked, thread_number or 0, asked * 7919 % 10007)
end

function common.usage(body, name)
    return tonumber(body:match('"' .. name .. '"%s*:%s*(%d+)'))
end

-- Makes wrk call make_body() for each request and check(body), which returns nil or what is
-- wrong, for each reply of status 200.
function common.post(make_body, check)
    failures, first_failure, prompt_tokens, cached_tokens = 0, "", 0, 0

    local function fail(what)
        failures = failures + 1
        if first_failure == "" then
            first_failure = what:gsub("%s+", " "):sub(1, 160)
        end
    end

    function request()
        return wrk.format("POST", "/v1/chat/completions", nil, make_body())
    end

    function response(status, _, body)
        if status ~= 200 then
            return fail("status " .. status .. ": " .. body)
        end
        local wrong = check(body)
        if wrong then
            return fail(wrong .. ": …" .. body:sub(-100))
        end
        prompt_tokens = prompt_tokens + (common.usage(body, "prompt_tokens") or 0)
        cached_tokens = cached_tokens + (common.usage(body, "cached_tokens") or 0)
    end
end

-- wrk runs each thread in a Lua state of its own; setup and done run in another one.
local threads = {}

function setup(thread)
    threads[#threads + 1] = thread
    thread:set("thread_number", #threads)
end

function done(summary, latency)
    local e = summary.errors
    local errors, first, prompt, cached = e.connect + e.read + e.write + e.timeout, "", 0, 0
    if errors > 0 then
        first = string.format("connect %d, read %d, write %d, timeout %d", e.connect, e.read, e.write, e.timeout)
    end
    local checked = false
    for _, thread in ipairs(threads) do
        local n = thread:get("failures")
        if n then
            checked = true
            errors = errors + n
            first = first == "" and thread:get("first_failure") or first
            prompt = prompt + thread:get("prompt_tokens")
            cached = cached + thread:get("cached_tokens")
        end
    end
    if not checked then -- its replies are not looked at, but wrk counts statuses over 399
        errors = errors + e.status
        first = first == "" and e.status > 0 and "statuses over 399" or first
    end
    local note = first
    if note == "" and prompt > 0 then
        note = string.format("%.0f %% of the prompts' tokens came from the prefix cache", 100 * cached / prompt)
    end
    print(string.format("RESULT %.1f %.2f %.2f %d %d %s", summary.requests / (summary.duration / 1e6),
        latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, summary.requests, errors, note))
end

return common
