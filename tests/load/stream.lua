-- stream.lua: streamed chats. A reply's time is that of its end. LOAD_*: see common.lua.
local common = dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "common.lua")

common.post(function()
    return common.chat(nil, common.question(), true)
end, function(body)
    if body:sub(-14) ~= "data: [DONE]\n\n" then
        return "the stream does not end with [DONE]"
    end
    if body:find('data: {"error"', 1, true) then
        return "an error inside the stream"
    end
    local _, finishes = body:gsub('"finish_reason"%s*:%s*"length"', "")
    if finishes ~= 1 then
        return finishes .. " finish reasons"
    end
    if common.usage(body, "completion_tokens") ~= common.max_tokens then
        return "not max_tokens tokens"
    end
end)
