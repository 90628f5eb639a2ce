// Tools of the AI SDK that wait for people: each call is a question in Countersign, and the
// tool runs with the value that they signed, whatever the model or the messages say.
import { asSchema, type ModelMessage, type ToolApprovalResponse, type ToolSet } from "ai"
import type { ToolExecutionOptions } from "ai"
import createClient, { type Client } from "openapi-fetch"
import type { components, paths } from "./countersign.js"

type Schemas = components["schemas"]
type Approval = Schemas["AskedApprovalOut"]
export type Call = { approvalId: string; toolCallId: string; toolName: string; input: unknown }
export type Asks = (call: Call) => Omit<Schemas["AskBody"], "items" | "key"> & { schema?: unknown }

export class Countersign {
  private api: Client<paths>

  // `question` says who decides on a call, and may have a JSON Schema that edits must fit.
  constructor(url: string, token: string, private question: Asks, fetcher?: typeof fetch) {
    if (!/^[\w-]+$/.test(token)) throw new Error("a token has letters, digits, - and _ alone")
    const headers = { Authorization: `Token ${token}` }
    this.api = createClient<paths>({ baseUrl: url, headers, redirect: "error", fetch: fetcher })
  }

  // The tools, as ones that act on signed values alone.
  tools<T extends ToolSet>(tools: T): T {
    const guarded = Object.entries(tools).map(([toolName, tool]) => {
      const execute = async (input: unknown, options: ToolExecutionOptions) => {
        const asked = [...requests(options.messages).values()].reverse()
        const call = asked.find(({ toolCallId }) => toolCallId === options.toolCallId)
        const approval = call && (await this.ask({ ...call, toolName, input }))
        const isSigned = approval?.state === "approved" && approval.is_own
        if (!isSigned) throw new Error(`nobody approved ${toolName}`)
        const [signed] = approval.items
        if (signed?.outcome?.result === "done") throw new Error(`${toolName} was done before`)
        const value = signed?.value
        const checked = await asSchema(tool.inputSchema).validate?.(value)
        if (checked?.success === false) throw checked.error
        try {
          const output = await tool.execute?.(value as never, options)
          await this.report(approval, "done")
          return output
        } catch (error) {
          await this.report(approval, "unknown", error instanceof Error ? error.name : "")
          throw error
        }
      }
      return [toolName, { ...tool, needsApproval: true, execute }]
    })
    return Object.fromEntries(guarded) as T
  }

  // The message with the answers to all that these messages ask; nothing while people still
  // decide. What was not asked yet is asked. To call it again, after a restart too, is safe.
  async respond(messages: ModelMessage[]): Promise<ModelMessage | undefined> {
    const content: ToolApprovalResponse[] = []
    const open = requests(messages)
    for (const part of parts(messages))
      if (part.type === "tool-approval-response") open.delete(part.approvalId)
    for (const [approvalId, call] of open) {
      const { state, items } = await this.ask(call)
      if (state === "opening" || state === "open") continue
      const facts = { approved: state === "approved", reason: items[0]?.reason || state }
      content.push({ type: "tool-approval-response", approvalId, ...facts })
    }
    return open.size && content.length === open.size ? { role: "tool", content } : undefined
  }

  // Reports what came of a call. The tool has run: a report that fails must not undo that.
  private async report(approval: Approval, result: "done" | "unknown", detail = "") {
    const [{ id: item = "", hash = "" } = {}] = approval.items
    const params = { path: { run: approval.id } }
    const body = { outcomes: [{ item, hash, result, detail }] }
    const sent = { params, body, signal: AbortSignal.timeout(30_000) }
    const answer = await this.api.POST("/api/v1/approvals/{run}/outcomes/", sent).catch(String)
    const refusal = typeof answer === "string" ? answer : answer.error?.detail
    if (refusal) console.warn(`the outcome of ${approval.key} is not reported: ${refusal}`)
  }

  // The approval of a call. It is asked once: the SDK's id of its request makes the key.
  private async ask(call: Call, attempts = 3): Promise<Approval> {
    const { schema, ...question } = this.question(call)
    const item = { id: call.toolName, value: call.input, schema, effect: "external" } as const
    const key = `ai-sdk-${encodeURIComponent(call.approvalId)}`
    const body = { ...question, items: [item], key }
    const signal = AbortSignal.timeout(30_000)
    const answer = await this.api.POST("/api/v1/approvals/", { body, signal }).catch(String)
    if (typeof answer !== "string" && answer.data) return answer.data
    const refusal = typeof answer === "string" ? answer : answer.error?.detail
    const status = typeof answer === "string" ? 503 : answer.response.status
    if (![429, 502, 503, 504].includes(status) || !attempts) throw new Error(refusal)
    await new Promise((resolve) => setTimeout(resolve, 2000 / attempts))
    return this.ask(call, attempts - 1)
  }
}

const parts = (messages: ModelMessage[]) =>
  messages.flatMap(({ content }) => (typeof content === "string" ? [] : [...content]))

// The calls about which the AI SDK asks, by the ids of its requests. Some models count their
// calls, so that two conversations share the ids of calls.
function requests(messages: ModelMessage[]): Map<string, Call> {
  const calls = new Map<string, Omit<Call, "approvalId">>()
  const all = new Map<string, Call>()
  for (const part of parts(messages)) {
    if (part.type === "tool-call") calls.set(part.toolCallId, part)
    const call = part.type === "tool-approval-request" && calls.get(part.toolCallId)
    if (call) all.set(part.approvalId, { ...call, approvalId: part.approvalId })
  }
  return all
}
