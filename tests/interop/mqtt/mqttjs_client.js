// MQTT.js, which does what it is asked to, in Node.js or in a browser. In Node.js a line on standard input is a request,
// written as in the query of a URL, and a line of JSON on standard output is what came of it, or {"failed": ...}. What
// can be asked for is described in tests/support/mqtt_devices.py.
'use strict';

/* exported makeClients */
function makeClients(mqtt, bytes, patienceMs) {
    const devices = new Map();

    const hex = bytes => Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('');

    // MQTT.js gives equal names of user properties as a list.
    const pairs = found => Object.entries(found || {}).flatMap(
        ([name, values]) => [].concat(values).map(value => [name, value]));

    function received(topic, payload, packet) {
        const message = {topic, payload: hex(payload), qos: packet.qos, retain: packet.retain};
        const told = packet.properties || {};
        if (told.contentType !== undefined) message.content_type = told.contentType;
        if (told.responseTopic !== undefined) message.response_topic = told.responseTopic;
        if (told.correlationData !== undefined) message.correlation = hex(told.correlationData);
        if (told.messageExpiryInterval !== undefined) message.expiry = told.messageExpiryInterval;
        if (told.payloadFormatIndicator) message.format = 1;
        if (told.userProperties) message.user_properties = pairs(told.userProperties);
        return message;
    }

    function within(promise, what) {
        return Promise.race([promise, new Promise((_, reject) => {
            setTimeout(() => reject(new Error(`${what} took too long`)), patienceMs);
        })]);
    }

    const does = {
        async connect(asked) {
            const isFive = asked.version === '5';
            const options = {
                protocolVersion: Number(asked.version), clientId: asked.id, clean: asked.clean === '1',
                reconnectPeriod: 0, username: asked.user, password: asked.password,
            };
            if (isFive) {
                options.properties = {};
                if (asked.expiry) options.properties.sessionExpiryInterval = Number(asked.expiry);
                if (asked.receive_maximum) options.properties.receiveMaximum = Number(asked.receive_maximum);
            }
            if (asked.will_topic) {
                options.will = {
                    topic: asked.will_topic, payload: bytes(asked.will_payload), qos: Number(asked.will_qos),
                    retain: asked.will_retain === '1',
                };
                if (isFive) options.will.properties = {willDelayInterval: Number(asked.will_delay)};
            }
            const client = mqtt.connect(asked.url || `mqtt://127.0.0.1:${asked.port}`, options);
            const device = {client, inbox: [], look: () => undefined};
            client.on('message', (topic, payload, packet) => {
                device.inbox.push(received(topic, payload, packet));
                device.look();
            });
            const reply = await within(new Promise((resolve, reject) => {
                client.on('connect', packet => resolve({present: packet.sessionPresent}));
                client.on('error', error => {
                    if (error.code === undefined || typeof error.code === 'string') reject(error);
                    else resolve({refused: error.code});
                });
                client.on('close', () => reject(new Error('the connection was closed')));
            }), 'CONNACK');
            if (reply.refused === undefined) devices.set(asked.name, device);
            return reply;
        },

        subscribe(asked) {
            const options = {qos: Number(asked.qos)};
            if (asked.version === '5') {
                options.nl = asked.no_local === '1';
                options.rap = asked.as_published === '1';
                options.rh = Number(asked.handling || 0);
            }
            return within(new Promise(resolve => {
                devices.get(asked.name).client.subscribe(asked.filter, options, (error, granted, packet) => {
                    resolve({granted: packet ? packet.granted[0] : error.code || granted[0].qos});
                });
            }), 'SUBACK');
        },

        async unsubscribe(asked) {
            await within(devices.get(asked.name).client.unsubscribeAsync(asked.filter), 'UNSUBACK');
            return {};
        },

        async publish(asked) {
            const {client} = devices.get(asked.name);
            const options = {qos: Number(asked.qos), retain: asked.retain === '1', properties: {}};
            if (asked.content_type) options.properties.contentType = asked.content_type;
            if (asked.response_topic) options.properties.responseTopic = asked.response_topic;
            if (asked.correlation) options.properties.correlationData = bytes(asked.correlation);
            if (asked.expiry) options.properties.messageExpiryInterval = Number(asked.expiry);
            if (asked.format) options.properties.payloadFormatIndicator = asked.format === '1';
            for (const pair of asked.user_properties ? asked.user_properties.split(',') : []) {
                const [name, value] = pair.split('=');
                const all = options.properties.userProperties = options.properties.userProperties || {};
                all[name] = name in all ? [].concat(all[name], value) : value;
            }
            const sent = asked.payloads.split(',').map(payload => new Promise(resolve => {
                client.publish(asked.topic, bytes(payload), options, (error, packet) => {
                    resolve(error ? error.code || String(error) : packet && packet.reasonCode || 0);
                });
            }));
            return {reasons: await within(Promise.all(sent), 'an acknowledgement')};
        },

        receive(asked) {
            const device = devices.get(asked.name);
            const count = Number(asked.count);
            const all = new Promise(resolve => {
                device.look = () => device.inbox.length >= count && resolve();
                device.look();
            });
            return within(all, `to receive ${count} messages`)
                .then(() => ({messages: device.inbox.splice(0, count)}));
        },

        async arrived(asked) {
            return {count: devices.get(asked.name).inbox.length};
        },

        async disconnect(asked) {
            await within(devices.get(asked.name).client.endAsync(), 'DISCONNECT');
            devices.delete(asked.name);
            return {};
        },

        async forget(asked) {
            await devices.get(asked.name).client.endAsync(true);
            devices.delete(asked.name);
            return {};
        },
    };
    return asked => does[asked.do](asked);
}

if (typeof window === 'undefined') {
    const answer = makeClients(require('mqtt'), text => Buffer.from(text, 'hex'), 20000);
    let last = Promise.resolve();
    require('readline').createInterface({input: process.stdin}).on('line', line => {
        const asked = Object.fromEntries(new URLSearchParams(line));
        last = last.then(() => answer(asked)).catch(error => ({failed: String(error.stack)}))
            .then(reply => console.log(JSON.stringify(reply)));
    }).on('close', () => process.exit(0));
}
