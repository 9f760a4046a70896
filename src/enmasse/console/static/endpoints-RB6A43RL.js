import{a as k}from"./chunk-2MUHNVI3.js";import{c as F}from"./chunk-IAAFKYZ7.js";import{d as G,e as y,f as J,g as U,h as d,i as p}from"./chunk-S424ZYES.js";import"./chunk-E5CSPS2D.js";import{a as Q}from"./chunk-6YZKYZUX.js";import{g as O,i as j}from"./chunk-AIV6PE7I.js";import"./chunk-EHY55SQG.js";import{c as M,d as E,e as w}from"./chunk-ZFZH2DLN.js";import"./chunk-IXAYYAOX.js";import"./chunk-J62BK6F2.js";import{b as N}from"./chunk-ED7OKXGJ.js";import{b as B}from"./chunk-UMBNLUN3.js";import{d as A}from"./chunk-WIJBW6SA.js";import"./chunk-6RKYGK2X.js";import"./chunk-BTJXPFWP.js";import{$ as L,Ga as H,Ra as D,Sa as I,U as q,Wa as W,b as S,c as ne,f as C,ia as R}from"./chunk-LDPZSGJG.js";var Y=S(ne(),1);var n=JSON.stringify,g=e=>e.tls?"amqps":"amqp",h=e=>e.host.includes(":")?`[${e.host}]`:e.host,c="PASSWORD",V=[{language:"Python",install:"pip install python-qpid-proton",file:"hello.py",text:e=>`from proton import Message${e.tls?", SSLDomain":""}
from proton.utils import BlockingConnection
${e.tls?`
tls = SSLDomain(SSLDomain.MODE_CLIENT)
tls.set_trusted_ca_db("ca.crt")
tls.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
`:""}
connection = BlockingConnection(
    "${g(e)}://${h(e)}:${e.port}",
    virtual_host=${n(e.space)},${e.tls?`
    ssl_domain=tls,`:""}${e.user===null?"":`
    user=${n(e.user)},
    password="${c}",${e.tls?"":`
    allow_insecure_mechs=True,`}`}
)
sender = connection.create_sender(${n(e.address)})
receiver = connection.create_receiver(${n(e.address)})
sender.send(Message(body="hello", durable=True))
print(receiver.receive(timeout=5).body)
receiver.accept()
connection.close()
`},{language:"Java",install:"org.apache.qpid:qpid-jms-client (Maven)",file:"Hello.java",text:e=>{let a=[`amqp.vhost=${encodeURIComponent(e.space)}`];e.tls&&a.push("transport.trustStoreLocation=ca.p12","transport.trustStorePassword=changeit");let i=e.user===null?"":`${n(e.user)}, "${c}"`;return`import jakarta.jms.*;
import org.apache.qpid.jms.JmsConnectionFactory;

public class Hello {
  public static void main(String[] arguments) throws JMSException {${e.tls?`
    // keytool -importcert -noprompt -alias enmasse -file ca.crt -keystore ca.p12 -storepass changeit`:""}
    var factory = new JmsConnectionFactory(
        "${g(e)}://${h(e)}:${e.port}?${a.join("&")}");
    try (Connection connection = factory.createConnection(${i})) {
      connection.start();
      Session session = connection.createSession();
      Queue address = session.createQueue(${n(e.address)});
      MessageConsumer receiver = session.createConsumer(address);
      session.createProducer(address).send(session.createTextMessage("hello"));
      System.out.println(((TextMessage) receiver.receive(5000)).getText());
    }
  }
}
`}},{language:"JavaScript",install:"npm install rhea",file:"hello.mjs",text:e=>`import rhea from "rhea";${e.tls?`
import { readFileSync } from "node:fs";`:""}

const container = rhea.create_container();
container.on("receiver_open", ({ connection }) => connection.open_sender(${n(e.address)}));
container.once("sendable", ({ sender }) => sender.send({ body: "hello", durable: true }));
container.on("message", ({ message, connection }) => {
  console.log(message.body);
  connection.close();
});
container
  .connect({
    host: ${n(e.host)},
    port: ${e.port},
    hostname: ${n(e.space)},${e.tls?`
    transport: "tls",
    servername: `+n(e.host)+`,
    ca: readFileSync("ca.crt"),`:""}${e.user===null?`
    username: "anonymous",`:`
    username: ${n(e.user)},
    password: "${c}",`}
    reconnect: false,
  })
  .open_receiver(${n(e.address)});
`},{language:"Go",install:"go get github.com/Azure/go-amqp",file:"main.go",text:e=>`package main

import (
	"context"${e.tls?`
	"crypto/tls"
	"crypto/x509"`:""}
	"fmt"
	"log"${e.tls?`
	"os"`:""}

	"github.com/Azure/go-amqp"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	ctx := context.Background()${e.tls?`
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must(os.ReadFile("ca.crt")))`:""}
	conn := must(amqp.Dial(ctx, "${g(e)}://${h(e)}:${e.port}", &amqp.ConnOptions{
		HostName: ${n(e.space)},${e.tls?`
		TLSConfig: &tls.Config{RootCAs: roots, ServerName: ${n(e.host)}},`:""}
		SASLType: ${e.user===null?"amqp.SASLTypeAnonymous()":`amqp.SASLTypePlain(${n(e.user)}, "${c}")`},
	}))
	defer conn.Close()
	session := must(conn.NewSession(ctx, nil))
	receiver := must(session.NewReceiver(ctx, ${n(e.address)}, nil))
	sender := must(session.NewSender(ctx, ${n(e.address)}, nil))
	message := amqp.NewMessage([]byte("hello"))
	message.Header = &amqp.MessageHeader{Durable: true}
	if err := sender.Send(ctx, message, nil); err != nil {
		log.Fatal(err)
	}
	got := must(receiver.Receive(ctx, nil))
	fmt.Println(string(got.GetData()))
	if err := receiver.AcceptMessage(ctx, got); err != nil {
		log.Fatal(err)
	}
}
`},{language:"C++",install:"libqpid-proton-cpp-dev (apt); link with -lqpid-proton-cpp",file:"hello.cpp",text:e=>`#include <proton/connection.hpp>
#include <proton/connection_options.hpp>
#include <proton/container.hpp>
#include <proton/delivery.hpp>
#include <proton/message.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/receiver.hpp>
#include <proton/sender.hpp>${e.tls?`
#include <proton/ssl.hpp>`:""}
#include <iostream>

struct Hello : proton::messaging_handler {
  void on_container_start(proton::container& container) override {
    proton::connection_options options;
    options.virtual_host(${n(e.space)});${e.tls?`
    options.ssl_client_options(proton::ssl_client_options("ca.crt"));`:""}${e.user===null?"":`
    options.user(${n(e.user)}).password("${c}");${e.tls?"":`
    options.sasl_allow_insecure_mechs(true);`}`}
    auto connection = container.connect("${g(e)}://${h(e)}:${e.port}", options);
    connection.open_receiver(${n(e.address)});
    connection.open_sender(${n(e.address)});
  }
  void on_sendable(proton::sender& sender) override {
    sender.send(proton::message("hello"));
    sender.close();
  }
  void on_message(proton::delivery& delivery, proton::message& message) override {
    std::cout << proton::get<std::string>(message.body()) << std::endl;
    delivery.connection().close();
  }
};

int main() {
  Hello hello;
  proton::container(hello).run();
}
`},{language:"MQTT",install:"apt-get install mosquitto-clients",file:"hello.sh",text:e=>{let i=`-u ${e.user===null?`anonymous@${e.space}`:`${e.user}@${e.space}`} -P ${e.user===null?"none":c}`,s=`-h ${e.host} -p ${e.port}${e.tls?" --cafile ca.crt":""} ${i} -V 5`;return`mosquitto_sub ${s} -t ${z(e.address)} -q 1 -C 1 -W 5 &
sleep 1
mosquitto_pub ${s} -t ${z(e.address)} -q 1 -m hello
wait
`}}];function z(e){return`'${e.replaceAll("'",`'"'"'`)}'`}var t=S(C(),1),X=[["amqp","AMQP"],["amqps","AMQPS"],["amqp-ws","AMQP-WS"],["amqp-wss","AMQP-WSS"]];function oe(e){return e==="localhost"||e==="::1"||e.startsWith("127.")}function se(e,a){return(e.spec.endpoints??[]).find(s=>s.name===a.name)?.expose?.type??"installation"}function re(){let e=B(),[a,i]=D(),{data:s,error:v}=W(`${e.inNamespace}/addressspaces`,e.name),T=a.get("address")??"orders",l=s?.status?.endpointStatuses??[],$=l.find(o=>o.externalHost),b=$?.externalHost??window.location.hostname.replace(/^\[|\]$/g,""),[m,K]=(0,Y.useState)(!oe(b)||$!==void 0),u=$?.externalPorts??l[0]?.servicePorts??{},Z=m?u.amqps??u.amqp:u.amqp??u.amqps,x=s?.spec.authenticationService,_=x?.type==="none"||x?.name?.startsWith("none")===!0,ee={host:b,port:Z??0,tls:m,space:`${e.name}.${e.namespace}`,address:T,user:_?null:"USER"},f=s?.status?.caCert;return(0,t.jsxs)(I,{title:"Endpoints",trail:[{title:"Spaces",to:"/spaces"},{title:e.name,to:`${e.to}/addresses`}],actions:f&&(0,t.jsx)(q,{variant:"secondary",onClick:()=>O("ca.crt",f,"application/x-pem-file"),children:"Download ca.crt"}),about:"Where clients connect. Every port speaks AMQP, MQTT, STOMP and WebSocket, in the clear and over TLS.",children:[v&&(0,t.jsx)(H,{error:v}),s&&l.length===0&&(0,t.jsx)(Q,{title:"No endpoint yet",children:"The space is being configured; its endpoints appear here as soon as it is ready."}),s&&l.length>0&&(0,t.jsxs)(t.Fragment,{children:[(0,t.jsxs)(G,{"aria-label":"Endpoints",variant:"compact",gridBreakPoint:"grid-md",children:[(0,t.jsx)(J,{children:(0,t.jsxs)(y,{children:[(0,t.jsx)(d,{children:"Name"}),(0,t.jsx)(d,{children:"Type"}),(0,t.jsx)(d,{children:"Host"}),X.map(([,o])=>(0,t.jsx)(d,{children:o},o))]})}),(0,t.jsx)(U,{children:l.flatMap(o=>[{name:o.name,type:"installation",host:o.serviceHost,ports:o.servicePorts},...o.externalHost?[{name:o.name,type:se(s,o),host:o.externalHost,ports:o.externalPorts}]:[]].map(r=>(0,t.jsxs)(y,{children:[(0,t.jsx)(p,{dataLabel:"Name",children:r.name}),(0,t.jsx)(p,{dataLabel:"Type",children:(0,t.jsx)(F,{isCompact:!0,children:r.type})}),(0,t.jsx)(p,{dataLabel:"Host",className:"em-wrap",children:r.host}),X.map(([P,te])=>(0,t.jsx)(p,{dataLabel:te,children:r.ports?.[P]??"\u2013"},P))]},`${r.name}/${r.type}`)))})]}),(0,t.jsxs)(M,{className:"em-above",children:[(0,t.jsx)(w,{component:"h2",children:"Send and receive a message"}),(0,t.jsxs)(E,{children:[(0,t.jsxs)(R,{alignItems:{default:"alignItemsFlexEnd"},columnGap:{default:"columnGapXl"},className:"em-figures",children:[(0,t.jsx)(N,{label:"Address",fieldId:"snippet-address",children:(0,t.jsx)(A,{id:"snippet-address",value:T,onChange:(o,r)=>i({address:r},{replace:!0}),autoComplete:"off"})}),(0,t.jsx)(k,{id:"snippet-tls",label:"TLS",isChecked:m,onChange:(o,r)=>K(r)})]}),(0,t.jsx)(j,{label:"Language",tabs:V.map(o=>({name:o.language,text:o.text(ee),file:o.file,note:(0,t.jsxs)(L,{component:"p",className:"em-above",children:["First: ",(0,t.jsx)("code",{children:o.install}),m&&f&&" and download ca.crt beside it",_?"":". Put a user of the space in the place of USER and PASSWORD","."]})}))})]})]})]})]})}export{re as default};
