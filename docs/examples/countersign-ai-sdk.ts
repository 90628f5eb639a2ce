// Tools of the AI SDK that wait for people: each call is a question in Countersign, and the
// tool runs with the value that they signed, whatever the model or the messages say.
import { asSchema, type ModelMessage, type ToolApprovalResponse, type ToolSet } from "ai"
import type { ToolExecutionOptions } from "ai"
import createClient, { type Client } from "openapi-fetch"
import type { components, paths } from "./countersign.js"

type Schemas = components["schemas"]
export type Call = { toolCallId: string; toolName: string; input: unknown }
export type Asks = (call: Call) => Omit<Schemas["AskBody"], "items" | "key"> & { schema?: unknown }

export class Countersign {
  private api: Client<paths>

  // `question` says who decides on a call, and may have a JSON Schema that edits must fit.
  constructor(url: string, token: string, private question: Asks, fetcher?: typeof fetch) {
    const headers = { Authorization: `Token ${token}` }
    this.api = createClient<paths>({ baseUrl: url, headers, fetch: fetcher })
  }

  // The tools, as ones that act on signed values alone.
  tools<T extends ToolSet>(tools: T): T {
    const guarded = Object.entries(tools).map(([toolName, tool]) => {
      const execute = async (input: unknown, options: ToolExecutionOptions) => {
        const approval = await this.ask({ toolCallId: options.toolCallId, toolName, input })
        if (approval.state !== "approved") throw new Error(`nobody approved ${toolName}`)
        const value = approval.items[0]?.value
        const checked = await asSchema(tool.inputSchema).validate?.(value)
        if (checked?.success === false) throw checked.error
        return tool.execute?.(value as never, options)
      }
      return [toolName, { ...tool, needsApproval: true, execute }]
    })
    return Object.fromEntries(guarded) as T
  }

  // The message with the answers to all that these messages ask; nothing while people still
  // decide. What was not asked yet is asked. To call it again, after a restart too, is safe.
  async respond(messages: ModelMessage[]): Promise<ModelMessage | undefined> {
    const content: ToolApprovalResponse[] = []
    const open = waiting(messages)
    for (const [approvalId, call] of open) {
      const { state, items } = await this.ask(call)
      if (state === "opening" || state === "open") continue
      const facts = { approved: state === "approved", reason: items[0]?.reason || state }
      content.push({ type: "tool-approval-response", approvalId, ...facts })
    }
    return open.size && content.length === open.size ? { role: "tool", content } : undefined
  }

  // The approval of a call. It is asked once, because the key is made of the call's id.
  private async ask(call: Call, attempts = 3): Promise<Schemas["AskedApprovalOut"]> {
    const { schema, ...question } = this.question(call)
    const item = { id: call.toolName, value: call.input, schema, effect: "external" } as const
    const key = `ai-sdk-${encodeURIComponent(call.toolCallId)}`
    const body = { ...question, items: [item], key }
    const answer = await this.api.POST("/api/v1/approvals/", { body }).catch(String)
    if (typeof answer !== "string" && answer.data) return answer.data
    const refusal = typeof answer === "string" ? answer : answer.error?.detail
    const status = typeof answer === "string" ? 503 : answer.response.status
    if (![429, 502, 503, 504].includes(status) || !attempts) throw new Error(refusal)
    await new Promise((resolve) => setTimeout(resolve, 2000 / attempts))
    return this.ask(call, attempts - 1)
  }
}

// The calls that wait for an answer, by the id of the AI SDK's request.
function waiting(messages: ModelMessage[]): Map<string, Call> {
  const calls = new Map<string, Call>()
  const open = new Map<string, Call>()
  for (const { content } of messages) {
    for (const part of typeof content === "string" ? [] : content) {
      if (part.type === "tool-call") calls.set(part.toolCallId, part)
      const call = part.type === "tool-approval-request" && calls.get(part.toolCallId)
      if (call) open.set(part.approvalId, call)
      if (part.type === "tool-approval-response") open.delete(part.approvalId)
    }
  }
  return open
}
