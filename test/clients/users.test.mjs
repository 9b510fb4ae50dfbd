// Every client as somebody who is no administrator: users and API keys that a
// security object names, by basic credentials and by cookie. What they may do
// works, what they may not is refused with words that their clients show.
import assert from 'node:assert/strict'
import { before, describe, test } from 'node:test'
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { randomBytes } from 'node:crypto'
import couchbackup from '@cloudant/couchbackup'
import cloudant from '@ibm-cloud/cloudant'
import nano from 'nano'
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import { createDatabase, databaseName, origin, request, within } from './target.mjs'

const { BasicAuthenticator, CloudantV1, CouchdbSessionAuthenticator } = cloudant
PouchDB.plugin(memoryAdapter)

const run = randomBytes(4).toString('hex')

/** Somebody with a name and a password, as clients take them. */
const person = (name, password) => ({ name, password, url: origin.replace('://', `://${name}:${password}@`) })

const people = {}

before(async () => {
  for (const name of ['reader', 'writer', 'stranger', 'member']) {
    const user = people[name] = person(`${name}-${run}`, `secret-${name}`)
    const { status, text } = await request('PUT', `/_users/org.couchdb.user:${user.name}`,
      { name: user.name, type: 'user', roles: name === 'member' ? [`staff-${run}`] : [], password: user.password })
    assert.equal(status, 201, text)
  }
  const { status, json, text } = await request('POST', '/_api/v2/api_keys')
  assert.equal(status, 201, text)
  people.key = person(json.key, json.password)
}, { timeout: 60_000 })

/** A database that names everybody but the stranger, with documents in it. */
async function shared (t, count = 20, more = { _attachments: { 'a.txt': { content_type: 'text/plain', data: 'aGVsbG8=' } } }) {
  const db = await createDatabase(t, 'users')
  await put(`/${db}/_security`, {
    service: {
      [people.reader.name]: ['_reader'],
      [people.writer.name]: ['_reader', '_writer', '_replicator'],
      [people.key.name]: ['_reader']
    },
    members: { roles: [`staff-${run}`] }
  })
  const docs = Array.from({ length: count }, (_, i) => ({ _id: `u${String(i).padStart(3, '0')}`, i, ...more }))
  const { status, text } = await request('POST', `/${db}/_bulk_docs`, { docs })
  assert.equal(status, 201, text)
  return db
}

async function put (path, body) {
  const { status, text } = await request('PUT', path, body)
  assert.ok(status === 200 || status === 201, text)
}

const count = async (db) => (await request('GET', `/${db}`)).json.doc_count

describe('PouchDB as a user', { concurrency: true, timeout: 120_000 }, () => {
  const local = (t) => {
    const db = new PouchDB(databaseName('local'), { adapter: 'memory' })
    t.after(() => db.destroy())
    return db
  }
  const remote = (who, db) => new PouchDB(`${origin}/${db}`, { auth: { username: who.name, password: who.password } })

  test('sync with _reader, _writer and _replicator, and as a member', async (t) => {
    for (const who of [people.writer, people.member]) {
      const db = await shared(t)
      const mine = local(t)
      await mine.bulkDocs(Array.from({ length: 10 }, (_, i) => ({ _id: `mine${i}`, _attachments: { b: { content_type: 'text/plain', data: 'aGk=' } } })))
      const first = await within(60_000, 'the sync', mine.sync(remote(who, db)))
      assert.deepEqual([first.push.docs_written, first.pull.docs_written, first.push.doc_write_failures], [10, 20, 0])
      assert.equal(await count(db), 30)
      assert.equal(String(await (await mine.getAttachment('u003', 'a.txt')).toString()), 'hello')
      const again = await within(60_000, 'the second sync', mine.sync(remote(who, db)))
      assert.deepEqual([again.push.docs_read, again.pull.docs_read], [0, 0], 'checkpoints were not kept')
    }
  })

  test('live sync', async (t) => {
    const db = await shared(t, 3)
    const mine = local(t)
    const sync = mine.sync(remote(people.writer, db), { live: true })
    const arrived = new Promise((resolve, reject) => {
      mine.changes({ live: true, since: 'now' }).on('change', (c) => { if (c.id === 'late') resolve() }).on('error', reject)
      sync.on('denied', reject).on('error', reject)
    })
    await put(`/${db}/late`, { from: 'somebody else' })
    await within(30_000, 'the late document', arrived)
    sync.cancel()
  })

  test('a reader pulls, and is told why a push is refused', async (t) => {
    const db = await shared(t)
    const mine = local(t)
    const pulled = await within(60_000, 'the pull', mine.replicate.from(remote(people.reader, db)))
    assert.equal(pulled.docs_written, 20)
    await mine.put({ _id: 'mine' })
    await assert.rejects(within(60_000, 'the refusal', mine.replicate.to(remote(people.reader, db))),
      (e) => { assert.equal(e.status ?? e.result?.errors?.[0]?.status, 403); assert.match(JSON.stringify(e) + e.message, /not allowed|forbidden/i); return true })
    assert.equal(await count(db), 20)
    await assert.rejects(remote(people.reader, db).put({ _id: 'x' }), { status: 403, name: 'forbidden' })
  })

  test('design documents are the administrators\' and strangers stay outside', async (t) => {
    const db = await shared(t)
    const mine = local(t)
    await mine.bulkDocs([{ _id: 'good' }, { _id: '_design/mine', views: {} }])
    const denied = []
    const pushed = await within(60_000, 'the push', mine.replicate.to(remote(people.writer, db)).on('denied', (d) => denied.push(d)))
    assert.deepEqual([pushed.docs_written, pushed.doc_write_failures], [1, 1])
    assert.equal(denied.length, 1)
    assert.deepEqual([denied[0].id ?? denied[0].doc?.id, denied[0].name ?? denied[0].doc?.name], ['_design/mine', 'forbidden'])
    assert.equal((await request('GET', `/${db}/_design/mine`)).status, 404)
    await assert.rejects(remote(people.stranger, db).allDocs(), { status: 403 })
    await assert.rejects(new PouchDB(`${origin}/${db}`).allDocs(), { status: 401 })
  })
})

describe('nano as a user', { concurrency: true, timeout: 120_000 }, () => {
  for (const way of ['basic', 'cookie']) {
    test(`by ${way}`, async (t) => {
      const name = await shared(t)
      const as = async (who) => {
        if (way === 'basic') return nano(who.url)
        const server = nano(origin) // it keeps cookies by itself
        const login = await server.auth(who.name, who.password)
        assert.equal(login.name, who.name)
        return server
      }
      const writer = await as(people.writer)
      const session = await writer.session()
      assert.equal(session.userCtx.name, people.writer.name)
      assert.deepEqual(session.userCtx.roles, [])
      assert.equal(session.info.authenticated, way === 'basic' ? 'default' : 'cookie')
      const db = writer.use(name)
      const { rev } = await db.insert({ by: 'writer' }, 'made')
      await db.attachment.insert('made', 'a', 'text', 'text/plain', { rev })
      assert.equal((await db.get('made')).by, 'writer')
      assert.equal((await db.bulk({ docs: [{ _id: 'b1' }, { _id: '_design/no' }] }))[1].error, 'forbidden')
      await assert.rejects(db.insert({ views: {} }, '_design/no'), { statusCode: 403, error: 'forbidden' })
      await assert.rejects(writer.db.list(), { statusCode: 403 })
      await assert.rejects(writer.db.create('users-more'), { statusCode: 403 })
      await assert.rejects(writer.db.destroy(name), { statusCode: 403 })
      await assert.rejects(writer.request({ db: name, path: '_security' }), { statusCode: 403 })

      const reader = (await as(people.reader)).use(name)
      assert.equal((await reader.list()).total_rows, 22)
      await assert.rejects(reader.insert({}, 'x'), { statusCode: 403, error: 'forbidden', reason: 'You are not allowed to access this db.' })
      const key = (await as(people.key)).use(name)
      assert.equal((await key.get('u000')).i, 0)
      await assert.rejects((await as(people.stranger)).use(name).get('u000'), { statusCode: 403 })
    })
  }

  test('a wrong password', async () => {
    await assert.rejects(nano(origin).auth(people.reader.name, 'no'), { statusCode: 401, reason: 'Name or password is incorrect.' })
    await assert.rejects(nano(person(people.reader.name, 'no').url).use('x').info(), { statusCode: 401 })
  })
})

describe('SDK as a user', { concurrency: true, timeout: 120_000 }, () => {
  for (const [way, Authenticator] of [['COUCHDB_SESSION', CouchdbSessionAuthenticator], ['BASIC', BasicAuthenticator]]) {
    test(`by ${way}`, async (t) => {
      const db = await shared(t)
      const as = ({ name, password }) => {
        const service = new CloudantV1({ authenticator: new Authenticator({ username: name, password }) })
        service.setServiceUrl(origin)
        return service
      }
      const refused = (e) => { assert.equal(e.code ?? e.status, 403, e.message); return true }
      const writer = as(people.writer)
      assert.equal((await writer.getSessionInformation()).result.userCtx.name, people.writer.name)
      assert.equal((await writer.putDocument({ db, docId: 'made', document: { by: 'sdk' } })).status, 201)
      assert.equal((await writer.getDocument({ db, docId: 'made' })).result.by, 'sdk')
      await assert.rejects(writer.putDesignDocument({ db, ddoc: 'no', designDocument: { views: {} } }), refused)
      await assert.rejects(writer.getAllDbs(), refused)
      await assert.rejects(writer.getSecurity({ db }), refused)
      const reader = as(people.reader)
      assert.equal((await reader.postAllDocs({ db })).result.totalRows, 21)
      await assert.rejects(reader.postDocument({ db, document: { _id: 'x' } }), refused)
      assert.equal((await as(people.key).postChanges({ db })).result.results.length, 21)
      await assert.rejects(as(people.stranger).getDatabaseInformation({ db }), refused)
    })
  }

  test('the settings of a program that moves over', async (t) => {
    const db = await shared(t, 1)
    Object.assign(process.env, { MOVED_URL: origin, MOVED_AUTH_TYPE: 'COUCHDB_SESSION', MOVED_USERNAME: people.reader.name, MOVED_PASSWORD: people.reader.password })
    const service = CloudantV1.newInstance({ serviceName: 'MOVED' })
    assert.equal((await service.getDocument({ db, docId: 'u000' })).result.i, 0)
  })
})

describe('couchbackup as a user', { timeout: 120_000 }, () => {
  test('a reader backs up, a writer restores', async (t) => {
    const from = await shared(t, 300, {})
    const to = await shared(t, 0)
    const directory = await mkdtemp(join(tmpdir(), 'divan-backup-'))
    t.after(() => rm(directory, { recursive: true, force: true }))
    const file = join(directory, 'backup')
    await within(60_000, 'the backup', new Promise((resolve, reject) => couchbackup.backup(`${people.reader.url}/${from}`, createWriteStream(file), { log: join(directory, 'log') }, (e) => e ? reject(e) : resolve())))
    await assert.rejects(within(60_000, 'the refusal', new Promise((resolve, reject) => couchbackup.restore(createReadStream(file), `${people.reader.url}/${to}`, {}, (e) => e ? reject(e) : resolve()))),
      (e) => { assert.match(`${e.name} ${e.message}`, /403|forbidden|not allowed/i); return true })
    assert.equal(await count(to), 0)
    await within(60_000, 'the restore', new Promise((resolve, reject) => couchbackup.restore(createReadStream(file), `${people.writer.url}/${to}`, {}, (e) => e ? reject(e) : resolve())))
    assert.equal(await count(to), 300)
    await assert.rejects(within(60_000, 'the refusal', new Promise((resolve, reject) => couchbackup.backup(`${people.stranger.url}/${from}`, createWriteStream(file + '2'), {}, (e) => e ? reject(e) : resolve()))),
      (e) => { assert.match(`${e.name} ${e.message}`, /403|forbidden|not allowed|access/i); return true })
  })
})
